//! How many values sequences have given: in memory for all sessions, and durably before anybody sees the values.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_store::{Change, Snapshot};

use crate::error::{ErrorKind, Result, SqlError, internal};
use crate::postgres::Surroundings;
use crate::run::Run;
use crate::sequences::{Sequence, name_in, option_of, unknown};

/// Values beyond the last one given that are durably reserved: the least number of them, and the greatest.
const RESERVED: (u64, u64) = (32, 65_536);

/// Where a sequence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    /// Its first value, the first one since `setval`, or the first one after it was altered.
    origin: i128,
    /// How many values it has given since.
    used: u64,
    /// The last value that it has given.
    last: Option<i64>,
    /// How its values follow each other; `None` where it is not known: no value is, either.
    steps: Option<Steps>,
}

/// How the values of a sequence follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Steps {
    increment: i64,
    min: i64,
    max: i64,
    cycles: bool,
}

impl Steps {
    fn of(sequence: &Sequence) -> Steps {
        let Sequence { increment, min, max, cycles, .. } = *sequence;
        Steps { increment, min, max, cycles }
    }
}

impl Position {
    /// The position of a sequence that has given no value.
    fn first(sequence: &Sequence) -> Position {
        let steps = Some(Steps::of(sequence));
        Position { origin: sequence.start.into(), used: 0, last: None, steps }
    }

    /// The position, from which values follow as the sequence has them: after it was altered, from the last value on.
    fn following(self, sequence: &Sequence) -> Position {
        let steps = Some(Steps::of(sequence));
        match self.last {
            Some(last) if self.steps.is_some() && self.steps != steps => {
                let origin = i128::from(last) + i128::from(sequence.increment);
                Position { origin, used: 0, steps, ..self }
            }
            _ => Position { steps, ..self },
        }
    }

    /// The position after so many more values than it has given.
    fn ahead(self, sequence: &Sequence, count: u64) -> Position {
        let used = self.used.saturating_add(count);
        let end = if sequence.increment > 0 { sequence.max } else { sequence.min };
        let last = sequence.value(self.origin, used.saturating_sub(1)).unwrap_or(end);
        Position { used, last: Some(last), ..self }
    }

    /// The position that a sequence was kept at, in what is committed or else in the transaction; the first one if in neither.
    fn found(committed: &Snapshot, own: &Snapshot, sequence: &Sequence) -> Position {
        let kept = Position::kept(committed, sequence.id);
        let kept = kept.or_else(|| Position::kept(own, sequence.id));
        kept.unwrap_or_else(|| Position::first(sequence))
    }

    fn text(self) -> String {
        let Position { origin, used, last, steps } = self;
        let Some(Steps { increment, min, max, cycles }) = steps else {
            return format!("{origin} {used}");
        };
        let last = last.map_or_else(|| "none".to_owned(), |last| last.to_string());
        format!("{origin} {used} {last} {increment} {min} {max} {cycles}")
    }

    /// The position that the option of a sequence says.
    fn kept(snapshot: &Snapshot, id: u64) -> Option<Position> {
        Position::read(snapshot.option(&option_of(id))?)
    }

    fn read(text: &str) -> Option<Position> {
        let words: Vec<&str> = text.split(' ').collect();
        let (origin, used) = (words.first()?.parse().ok()?, words.get(1)?.parse().ok()?);
        let [last, increment, min, max, cycles] = words.get(2..)? else {
            return Some(Position { origin, used, last: None, steps: None });
        };
        let (increment, min) = (increment.parse().ok()?, min.parse().ok()?);
        let (max, cycles) = (max.parse().ok()?, cycles.parse().ok()?);
        let steps = Some(Steps { increment, min, max, cycles });
        Some(Position { origin, used, last: last.parse().ok(), steps })
    }
}

/// The positions of a database's sequences.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    /// By the sequences' numbers.
    at: Mutex<HashMap<u64, Position>>,
    /// One statement at a time makes positions durable.
    keeping: tokio::sync::Mutex<()>,
}

impl Positions {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Position>> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sequences of which a statement has taken values, by their names.
#[derive(Debug, Default)]
pub(crate) struct UsedSequences {
    by_name: Mutex<HashMap<String, Arc<Sequence>>>,
    is_any: AtomicBool,
}

impl UsedSequences {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Sequence>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self) {
        self.is_any.store(true, Ordering::Release);
    }
}

/// The last values that a session was given.
#[derive(Debug, Default)]
pub(crate) struct CurrentValues {
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    /// By the sequences' numbers.
    last: HashMap<u64, i64>,
    /// Of all sequences.
    last_of_all: Option<i64>,
}

impl CurrentValues {
    fn lock(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sequence that a text names, as its own name and its definition.
fn find(around: &Surroundings, text: &str) -> Result<(String, Arc<Sequence>)> {
    if let Some(known) = around.sequences.lock().get(text) {
        return Ok((text.to_owned(), Arc::clone(known)));
    }
    let name = name_in(text)?;
    let snapshot = around.snapshot()?;
    let Some(found) = Sequence::find(&snapshot, &name)? else {
        return Err(unknown(&snapshot, &name));
    };
    let found = Arc::new(found);
    around.sequences.lock().insert(text.to_owned(), Arc::clone(&found));
    Ok((name, found))
}

/// `nextval(name)`: a value that the sequence has not given before.
///
/// # Errors
/// [`ErrorKind::Semantic`] for unknown sequences, [`ErrorKind::Data`] for sequences without further values.
pub(crate) fn next(around: &Surroundings, text: &str) -> Result<i64> {
    if around.is_trial {
        return Ok(1);
    }
    let (name, sequence) = find(around, text)?;
    let engine = around.engine()?;
    let value = {
        let mut positions = engine.sequences.lock();
        let known = match positions.get(&sequence.id) {
            Some(known) => *known,
            None => {
                let own = around.snapshot()?;
                Position::found(&engine.store().snapshot(), &own, &sequence)
            }
        };
        let mut position = known.following(&sequence);
        let value = sequence.value(position.origin, position.used);
        if value.is_some() {
            position.used += 1;
            position.last = value;
        }
        positions.insert(sequence.id, position);
        value
    };
    let Some(value) = value else {
        let (end, bound) = match sequence.increment > 0 {
            true => ("greatest", sequence.max),
            false => ("least", sequence.min),
        };
        let message = format!("sequence {name} has given its {end} value {bound} already");
        return Err(SqlError::new(ErrorKind::Data, message)
            .with_hint(format!("begin anew with setval('{name}', 1), or make it with CYCLE")));
    };
    around.sequences.note();
    let mut given = around.current.lock();
    given.last.insert(sequence.id, value);
    given.last_of_all = Some(value);
    Ok(value)
}

/// `currval(name)`: the last value that the session was given of a sequence.
///
/// # Errors
/// [`ErrorKind::Semantic`] for unknown sequences and before `nextval`.
pub(crate) fn current(around: &Surroundings, text: &str) -> Result<i64> {
    let (name, sequence) = find(around, text)?;
    around.current.lock().last.get(&sequence.id).copied().ok_or_else(|| {
        let message = format!("sequence {name} has given this session no value yet");
        SqlError::new(ErrorKind::Semantic, message).with_hint(format!("call nextval('{name}')"))
    })
}

/// `lastval()`: the last value that the session was given of any sequence.
///
/// # Errors
/// [`ErrorKind::Semantic`] before `nextval`.
pub(crate) fn last(around: &Surroundings) -> Result<i64> {
    around.current.lock().last_of_all.ok_or_else(|| {
        SqlError::new(ErrorKind::Semantic, "no sequence has given this session a value yet")
    })
}

/// `setval(name, value, is_given)`: the sequence goes on behind a value, or with it if that is not given.
///
/// # Errors
/// [`ErrorKind::Semantic`] for unknown sequences and for values outside of its bounds.
pub(crate) fn set(around: &Surroundings, text: &str, value: i64, is_given: bool) -> Result<i64> {
    let (name, sequence) = find(around, text)?;
    let (min, max) = (sequence.min, sequence.max);
    if !(min..=max).contains(&value) {
        let message = format!("{value} is no value of sequence {name}, which has {min} to {max}");
        return Err(SqlError::new(ErrorKind::Data, message));
    }
    let step = if is_given { sequence.increment } else { 0 };
    let position = Position {
        origin: i128::from(value) + i128::from(step),
        used: 0,
        last: is_given.then_some(value),
        steps: Some(Steps::of(&sequence)),
    };
    around.engine()?.sequences.lock().insert(sequence.id, position);
    around.sequences.note();
    if is_given {
        around.current.lock().last.insert(sequence.id, value);
    }
    Ok(value)
}

impl Run {
    /// Moves a sequence that is altered, as `setval` does: to the value with which it begins anew, or nowhere. `names` are its name and
    /// the one that the statement has, `of` the sequence before and after.
    ///
    /// # Errors
    /// [`ErrorKind::Semantic`] for a value outside of its bounds.
    pub(super) fn move_sequence(
        &self,
        snapshot: &Snapshot,
        (name, text): (&str, &str),
        (old, altered): (&Sequence, &Sequence),
        restart: Option<i64>,
    ) -> Result<()> {
        let engine = self.session.engine();
        let mut positions = engine.sequences.lock();
        let known = positions.get(&old.id).copied();
        let known =
            known.unwrap_or_else(|| Position::found(&engine.store().snapshot(), snapshot, old));
        let position = match restart {
            Some(value) => Position { origin: value.into(), used: 0, last: None, steps: None },
            None => known,
        };
        let (min, max) = (altered.min, altered.max);
        if let Some(value) = restart.or(known.last)
            && !(min..=max).contains(&value)
        {
            let message = format!(
                "sequence {name} is at {value}, which is not between MINVALUE {min} and MAXVALUE {max}"
            );
            return Err(SqlError::new(ErrorKind::Semantic, message)
                .with_hint("write RESTART WITH a value between them"));
        }
        let position = Position { steps: position.steps.or(Some(Steps::of(altered))), ..position };
        positions.insert(old.id, position);
        drop(positions);
        let used = &self.control.sequences;
        used.lock().insert(text.to_owned(), Arc::new(altered.clone()));
        used.note();
        Ok(())
    }

    /// Makes durable how many values the statement has taken of sequences, before anybody can rely on them.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnlyTransaction`], and those of the store.
    pub(crate) async fn keep_sequences(&self) -> Result<()> {
        if !self.control.sequences.is_any.load(Ordering::Acquire) {
            return Ok(());
        }
        if let Some(transaction) = &self.transaction {
            transaction.check_sequences()?;
        }
        let used: Vec<(String, Arc<Sequence>)> = {
            let used = self.control.sequences.lock();
            used.iter().map(|(text, found)| (text.clone(), Arc::clone(found))).collect()
        };
        if self.unkept(&used)?.is_empty() {
            return Ok(());
        }
        // Once begun, it goes on although the statement is cancelled: the next one must not overtake it.
        let run = self.clone();
        let kept = tokio::spawn(async move { run.keep(&used).await });
        kept.await.map_err(|error| internal(&error.to_string()))?
    }

    async fn keep(&self, used: &[(String, Arc<Sequence>)]) -> Result<()> {
        let engine = Arc::clone(self.session.engine());
        let _turn = engine.sequences.keeping.lock().await;
        let (mut durable, mut own) = (Vec::new(), Vec::new());
        for (change, is_committed) in self.unkept(used)? {
            if is_committed { durable.push(change) } else { own.push(change) }
        }
        if !durable.is_empty() {
            engine.store().commit(durable).await?;
        }
        match &self.transaction {
            Some(transaction) if !own.is_empty() => transaction.apply(own).await,
            _ => Ok(()),
        }
    }

    /// The changes that make positions durable, and whether others know the sequences, which the transaction has not made itself.
    fn unkept(&self, used: &[(String, Arc<Sequence>)]) -> Result<Vec<(Change, bool)>> {
        let engine = self.session.engine();
        let committed = engine.store().snapshot();
        let mut changes = Vec::new();
        for (text, sequence) in used {
            let Some(now) = engine.sequences.lock().get(&sequence.id).copied() else { continue };
            let name = name_in(text)?;
            let is_same = |found: Option<Sequence>| found.is_some_and(|of| of.id == sequence.id);
            let is_committed = is_same(Sequence::find(&committed, &name)?);
            let kept = match (is_committed, &self.transaction) {
                (true, _) => Position::kept(&committed, sequence.id),
                (false, Some(transaction)) => {
                    let own = transaction.snapshot()?;
                    if !is_same(Sequence::find(&own, &name)?) {
                        continue;
                    }
                    Position::kept(&own, sequence.id)
                }
                // It was dropped meanwhile.
                (false, None) => continue,
            };
            let kept = kept.unwrap_or_else(|| Position::first(sequence));
            if kept.origin == now.origin && kept.used >= now.used && kept.steps == now.steps {
                continue;
            }
            let (least, most) = RESERVED;
            let ahead = now.used.saturating_sub(kept.used).clamp(least, most);
            let reserved = now.ahead(sequence, ahead);
            let (name, value) = (option_of(sequence.id), Some(reserved.text()));
            changes.push((Change::SetOption { name, value }, is_committed));
        }
        Ok(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequences::Owner;

    fn sequence(increment: i64, max: i64) -> Sequence {
        let owner = Owner::None;
        Sequence { id: 7, start: 1, increment, min: 1, max, cycles: false, owner }
    }

    #[test]
    fn positions_are_read_as_they_were_written() {
        let first = Position::first(&sequence(2, 9));
        for position in [first, first.ahead(&sequence(2, 9), 3)] {
            assert_eq!(Position::read(&position.text()), Some(position));
        }
        // As sequences were kept before they could be altered.
        let before = Position { origin: 1, used: 32, last: None, steps: None };
        assert_eq!(Position::read("1 32"), Some(before));
        assert_eq!(Position::read("1 x"), None);
    }

    #[test]
    fn values_of_an_altered_sequence_follow_the_last_one() {
        let given = Position::first(&sequence(2, 9)).ahead(&sequence(2, 9), 3);
        assert_eq!((given.last, given.following(&sequence(2, 9))), (Some(5), given));
        let altered = given.following(&sequence(10, 99));
        assert_eq!((altered.origin, altered.used), (15, 0));
        let unused = Position::first(&sequence(2, 9)).following(&sequence(10, 99));
        assert_eq!((unused.origin, unused.used), (1, 0));
    }
}
