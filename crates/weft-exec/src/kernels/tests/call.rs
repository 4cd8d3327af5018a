use std::sync::Mutex;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, ListArray, StringArray};
use arrow_schema::{DataType, Field};

use super::*;
use crate::error::{ExecError, Result};
use crate::program::Function;

/// Calls a closure.
struct Closure<F> {
    inputs: Vec<DataType>,
    output: DataType,
    call: F,
}

impl<F> std::fmt::Debug for Closure<F> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("closure")
    }
}

impl<F: Fn(&[ArrayRef], usize) -> Result<ArrayRef> + Send + Sync> Function for Closure<F> {
    fn name(&self) -> &str {
        "closure"
    }

    fn input_types(&self) -> &[DataType] {
        &self.inputs
    }

    fn output_type(&self) -> &DataType {
        &self.output
    }

    fn call(&self, inputs: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        (self.call)(inputs, rows)
    }
}

#[test]
fn functions_see_what_is_selected() {
    // 10 / a, which fails for 0 even where nobody asks for it.
    let call = |inputs: &[ArrayRef], rows: usize| -> Result<ArrayRef> {
        let a = inputs[0].as_primitive::<Int64Type>();
        assert_eq!(a.len(), rows);
        let divide = |a: i64| 10i64.checked_div(a).ok_or(ExecError::DivisionByZero);
        let values: Result<Vec<Option<i64>>> =
            a.iter().map(|a| a.map(divide).transpose()).collect();
        Ok(Arc::new(Int64Array::from(values?)))
    };
    let function: Arc<dyn Function> =
        Arc::new(Closure { inputs: vec![DataType::Int64], output: DataType::Int64, call });
    let step = |inputs: &[Register], out| Step::Call {
        function: function.clone(),
        inputs: inputs.to_vec(),
        out,
    };
    check(&[Lane::I64], Lane::I64, step, |inputs| {
        let [Some(Constant::I64(a))] = inputs else { return Ok(None) };
        10i64.checked_div(*a).map(|value| Some(Constant::I64(value))).ok_or(())
    });
}

#[test]
fn strings_outlive_their_array() {
    for output in [DataType::Utf8, DataType::Utf8View, DataType::LargeUtf8] {
        let call = |inputs: &[ArrayRef], _: usize| -> Result<ArrayRef> {
            let text = inputs[0].as_string_view();
            let twice = text.iter().map(|text| text.map(|text| format!("{text}{text}")));
            Ok(match output {
                DataType::Utf8 => Arc::new(twice.collect::<StringArray>()),
                DataType::LargeUtf8 => Arc::new(twice.collect::<arrow_array::LargeStringArray>()),
                _ => Arc::new(twice.collect::<arrow_array::StringViewArray>()),
            })
        };
        let inputs = vec![DataType::Utf8View];
        let closure = Closure { inputs, output: output.clone(), call };
        // The closure borrows, a step may not: the test calls the kernel itself.
        let mut random = fastrand::Rng::with_seed(23);
        let column: Vec<Datum> = (0..300)
            .map(|_| {
                Some(random_value(&mut random, Lane::Str, true)).filter(|_| random.u8(..) < 200)
            })
            .collect();
        let mut registers = Registers::of(&[Lane::Str, Lane::Str]);
        registers.begin(column.len());
        registers.selection.retain(|row| row % 3 != 0);
        let selected: Vec<bool> = (0..column.len()).map(|row| row % 3 != 0).collect();
        load(&mut random, &mut registers, Register(0), &column, &selected);
        let array = {
            let vector = registers.vector(Register(0));
            let mut builder = crate::arrow::ColumnBuilder::new(&DataType::Utf8View, Lane::Str);
            builder.append(vector, registers.selected());
            closure.call(&[builder.finish().expect("strings")], registers.selection.count())
        };
        let array = Mutex::new(Some(array.expect("strings")));
        let give = move |_: &[ArrayRef], _: usize| -> Result<ArrayRef> {
            Ok(array.lock().expect("not poisoned").take().expect("one call"))
        };
        let function: Arc<dyn Function> =
            Arc::new(Closure { inputs: vec![DataType::Utf8View], output, call: give });
        let step = Step::Call { function, inputs: vec![Register(0)], out: Register(1) };
        crate::kernels::run(&step, &mut registers).expect("does not fail");
        drop(step);
        registers.selected().for_each(|row| {
            let twice = column[row].as_ref().map(|value| match value {
                Constant::Str(text) => Constant::Str(Arc::from([&text[..], &text[..]].concat())),
                _ => unreachable!("a string"),
            });
            assert_eq!(datum(&registers, Register(1), row), twice);
        });
    }
}

#[test]
fn lists_travel_as_rows() {
    let item = Arc::new(Field::new_list_field(DataType::Int64, true));
    let data_type = DataType::List(item);
    let make = |inputs: &[ArrayRef], _: usize| -> Result<ArrayRef> {
        let a = inputs[0].as_primitive::<Int64Type>();
        let lists = a.iter().map(|a| a.map(|a| vec![Some(a), None]));
        Ok(Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)))
    };
    let make: Arc<dyn Function> =
        Arc::new(Closure { inputs: vec![DataType::Int64], output: data_type.clone(), call: make });
    let first = |inputs: &[ArrayRef], _: usize| -> Result<ArrayRef> {
        let firsts = inputs[0].as_list::<i32>().iter().map(|list| {
            let list = list?;
            assert_eq!(list.len(), 2);
            Some(list.as_primitive::<Int64Type>().value(0))
        });
        Ok(Arc::new(firsts.collect::<Int64Array>()))
    };
    let first: Arc<dyn Function> =
        Arc::new(Closure { inputs: vec![data_type], output: DataType::Int64, call: first });
    let mut registers = Registers::of(&[Lane::I64, Lane::Str, Lane::I64]);
    registers.begin(5);
    let column = [Some(1), None, Some(3), Some(4), Some(5)].map(|value| value.map(Constant::I64));
    let mut random = fastrand::Rng::with_seed(2);
    load(&mut random, &mut registers, Register(0), &column, &[true; 5]);
    registers.selection.retain(|row| row != 3);
    for (function, input, out) in [(make, 0, 1), (first, 1, 2)] {
        let step = Step::Call { function, inputs: vec![Register(input)], out: Register(out) };
        crate::kernels::run(&step, &mut registers).expect("does not fail");
    }
    for row in [0, 1, 2, 4] {
        assert_eq!(datum(&registers, Register(2), row), column[row]);
    }
}
