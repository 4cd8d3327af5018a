//! The operators that ask for memory, told apart by the names that DataFusion gives them: what each does
//! when it is refused decides what it gets.

/// What an operator does when it is refused memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Temper {
    /// It spills what it holds, and asks again.
    Spills,
    /// It writes to disk what it would have passed on, and holds nothing else.
    PassesOn,
    /// It feeds an exchange, holds nothing, and fails when exchanges hold too much.
    Feeds,
    /// It merges sorted runs: fewer at a time, if it is refused beyond what it needs.
    Merges,
    /// It fails, but needs only a few batches.
    Bounded,
    /// It fails, and needs what one of its inputs has.
    Builds,
}

/// The temper of the consumer with this name, which can spill or cannot.
pub(crate) fn temper(consumer: &str, can_spill: bool) -> Temper {
    match (plain_name(consumer), can_spill) {
        ("RepartitionExec", true) => Temper::PassesOn,
        (FEED, false) => Temper::Feeds,
        (_, true) => Temper::Spills,
        ("ExternalSorterMerge", false) => Temper::Merges,
        (
            "SortPreservingMergeExec"
            | "RepartitionExec"
            | "AggregateStream"
            | "TopK"
            | "PartialReduceHashAggregateStream"
            | "OrderedPartialAggregateStream"
            | "ParquetSink",
            false,
        ) => Temper::Bounded,
        (_, false) => Temper::Builds,
    }
}

/// A consumer's name without its partition: `HashJoinInput[3]` becomes `HashJoinInput`.
fn plain_name(consumer: &str) -> &str {
    consumer.split(['[', '(', ' ']).next().unwrap_or(consumer)
}

/// A consumer's name as people say it.
pub(crate) fn spoken_name(consumer: &str) -> String {
    let known = match plain_name(consumer) {
        "HashJoinInput" => "the hash join's build side",
        "NestedLoopJoinLoad" | "NestedLoopJoinGlobalRightBitmaps" => {
            "the nested-loop join's left side"
        }
        "PiecewiseMergeJoinInput" => "the inequality join's build side",
        "CrossJoinExec" => "the cross join's left side",
        "SMJStream" => "the merge join",
        "ExternalSorter" => "the sort",
        "ExternalSorterMerge" => "the merge of sorted rows",
        "SortPreservingMergeExec" => "the merge of sorted inputs",
        "TopK" | "PartitionedTopK" | "PartitionedTopKRank" => "the top-k sort",
        "RecursiveQuery" | "RecursiveQueryHashTable" => "the recursive query",
        "RepartitionExec" | FEED => "the exchange between threads",
        "ParquetSink" => "the writer of Parquet",
        WINDOW => "the window function",
        "OnceExec" => "the rows that are evaluated once",
        name if name.contains("Aggregate") => "the aggregation",
        other => return format!("the operator {other}"),
    };
    known.to_owned()
}

/// The consumer of what feeds an exchange.
pub(crate) const FEED: &str = "ExchangeFeed";

/// The consumer of window functions that need all rows at once.
pub(crate) const WINDOW: &str = "WindowAggStream";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumers_are_told_apart() {
        for (name, can_spill, expected) in [
            ("ExternalSorter[3]", true, Temper::Spills),
            ("ExternalSorterMerge[3]", false, Temper::Merges),
            ("FinalHashAggregateStream[0]", true, Temper::Spills),
            ("RepartitionExec[0]", true, Temper::PassesOn),
            ("ExchangeFeed[1]", false, Temper::Feeds),
            ("RepartitionExec[Merge 0]", false, Temper::Bounded),
            ("SortPreservingMergeExec[0]", false, Temper::Bounded),
            ("HashJoinInput", false, Temper::Builds),
        ] {
            assert_eq!(temper(name, can_spill), expected, "{name}");
        }
        assert_eq!(spoken_name("HashJoinInput[1]"), "the hash join's build side");
        assert_eq!(spoken_name("GroupedHashAggregateStream[0] (count(*))"), "the aggregation");
        assert_eq!(spoken_name("Other[0]"), "the operator Other");
    }
}
