//! The filters, tests and functions of templates, and the writing of values, under a meter.
//!
//! A limit on the number of instructions is not enough: one instruction can double a value, and one filter can compare
//! each element with each other. So every operation that creates, compares or writes values is charged before it runs,
//! by the size of its operands, and again for its result. Lazy values are materialized at once, so that later uses cost
//! nothing more. The allowance is [`WORK`] for each part of a mail. It is not a time limit, because a message must not
//! fail when the server is busy.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs, from_args};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State};
use minijinja::{filters, functions, tests};

use super::plain_name::is_plain_name;

/// The allowance of one part of a mail: an octet of a string costs 1, a value [`NODE`].
const WORK: u64 = 32 * 1024 * 1024;
/// Approximate size of a value in memory besides the octets of a string.
const NODE: u64 = 32;
/// Maximum depth of nested lists. The variables come from JSON, whose parser allows 128 levels.
const NESTING_MAX: usize = 200;

/// The filter that charges for a whole value before an operation.
pub const CHARGE_VALUE: &str = "weighed";
/// The filter that charges for the result of an operation, and materializes it.
pub const CHARGE_RESULT: &str = "made";
/// The filter that charges for the outer level of a value before an element is taken from it.
pub const CHARGE_OUTER: &str = "picked";
/// The filter that lets only numbers pass: multiplication makes any other value longer.
pub const ONLY_NUMBERS: &str = "factor";
/// The filter that lets no missing variable and no null pass: a slice of either is an empty list.
pub const ONLY_PRESENT: &str = "present";

/// The remaining allowance of a part.
#[derive(Clone, Default)]
pub struct Meter(Arc<AtomicU64>);

impl Meter {
    /// Starts another part.
    pub fn refill(&self) {
        self.0.store(WORK, Ordering::Relaxed);
    }

    fn charge(&self, cost: u64) -> Result<(), Error> {
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(left.saturating_sub(cost), Ordering::Relaxed);
        if cost > left {
            return Err(Error::from(ErrorKind::OutOfFuel));
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Charges for a value and everything in it, counted as often as it occurs, and returns the cost.
    fn charge_value(&self, value: &Value) -> Result<u64, Error> {
        self.weigh_within(value, 0)
    }

    fn weigh_within(&self, value: &Value, depth: usize) -> Result<u64, Error> {
        let octets = match value.kind() {
            ValueKind::String => value.as_str().map_or(0, str::len),
            ValueKind::Bytes => value.as_bytes().map_or(0, <[u8]>::len),
            _ => 0,
        };
        let mut weight = NODE.saturating_add(octets as u64);
        self.charge(weight)?;
        if depth >= NESTING_MAX {
            return Err(Error::from(ErrorKind::OutOfFuel));
        }
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                for item in value.try_iter()? {
                    weight = weight.saturating_add(self.weigh_within(&item, depth + 1)?);
                }
            }
            ValueKind::Map => {
                let pairs = value.as_object().and_then(|map| map.try_iter_pairs());
                for (key, item) in pairs.into_iter().flatten() {
                    weight = weight.saturating_add(self.weigh_within(&key, depth + 1)?);
                    weight = weight.saturating_add(self.weigh_within(&item, depth + 1)?);
                }
            }
            _ => {}
        }
        Ok(weight)
    }

    /// Charges for reading the length or the letters of a string, or the outer level of a list.
    fn charge_outer(&self, value: &Value) -> Result<(), Error> {
        self.charge(NODE.saturating_add(value.as_str().map_or(0, str::len) as u64))
    }

    /// Charges for the result of an operation and materializes it: nested lazy values would be computed again at each
    /// use.
    fn charge_result(&self, value: Value) -> Result<Value, Error> {
        let value = if value.kind() == ValueKind::Iterable {
            let items: Result<Vec<Value>, Error> = value
                .try_iter()?
                .map(|item| self.charge(NODE).map(|()| item))
                .collect();
            Value::from(items?)
        } else {
            value
        };
        self.charge_value(&value)?;
        Ok(value)
    }

    /// Charges for a filter: for its operands, and for its arguments once more for each element, because each element
    /// is compared with them, looked up in them or joined by them.
    fn charge_arguments(&self, access: InputAccess, args: &[Value]) -> Result<(), Error> {
        let Some((first, others)) = args.split_first() else {
            return Ok(());
        };
        let weight = self.charge_value(first)?;
        let mut rest: u64 = 0;
        for other in others {
            rest = rest.saturating_add(self.charge_value(other)?);
        }
        let count = match first.kind() {
            ValueKind::String => first.as_str().map_or(0, str::len),
            _ => first.len().unwrap_or(0),
        } as u64;
        self.charge(count.saturating_add(1).saturating_mul(rest))?;
        if access == InputAccess::Pairwise {
            // Each comparison may copy both operands to fold their case; the longest string may be in each.
            let levels = u64::from(count.checked_ilog2().unwrap_or(0) + 1);
            let longest = longest(first).min(weight);
            self.charge(count.saturating_mul(levels).saturating_mul(longest))?;
        }
        Ok(())
    }
}

/// The cost of the longest string in a value that was charged for, or of another operand of a comparison.
fn longest(value: &Value) -> u64 {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => value
            .try_iter()
            .into_iter()
            .flatten()
            .map(|item| longest(&item))
            .max()
            .unwrap_or(0),
        ValueKind::Map => value
            .as_object()
            .and_then(|map| map.try_iter_pairs())
            .into_iter()
            .flatten()
            .map(|(key, item)| longest(&key).max(longest(&item)))
            .max()
            .unwrap_or(0),
        _ => value.as_str().map_or(0, str::len) as u64 + NODE,
    }
}

/// How a filter reads its input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InputAccess {
    /// Reads no elements of a list, but may read a string.
    Outer,
    /// Reads all of it once.
    Once,
    /// Compares its elements with each other.
    Pairwise,
}

/// The names that templates may use, and the operations behind them.
pub struct AllowedNames {
    /// Filters.
    pub filters: Vec<&'static str>,
    /// Tests.
    pub tests: Vec<&'static str>,
    /// Functions.
    pub functions: Vec<&'static str>,
}

/// Registers everything that a template may name. Left out are operations that create large values from small ones
/// (`format`, `indent`, `batch`, `slice`, `chain`, `zip`), and those that show everything (`pprint`, `debug`). The function is
/// long because it has one line for each name.
pub fn register(environment: &mut Environment<'static>, meter: &Meter) -> AllowedNames {
    let mut names = AllowedNames {
        filters: Vec::new(),
        tests: Vec::new(),
        functions: vec!["range"],
    };
    let mut filter = |access: InputAccess, name: &'static str, function: Value| {
        let meter = meter.clone();
        names.filters.push(name);
        environment.add_filter(
            name,
            move |state: &mut State, args: Rest<ValueOrKwargs>| -> Result<Value, Error> {
                let args = args.into_values();
                if access == InputAccess::Outer {
                    args.iter().try_for_each(|arg| meter.charge_outer(arg))?;
                    return function.call(state, &args);
                }
                meter.charge_arguments(access, &args)?;
                meter.charge_result(function.call(state, &args)?)
            },
        );
    };
    macro_rules! filters {
        ($access:ident: $($name:ident)*) => {
            $(filter(InputAccess::$access, stringify!($name), Value::from_function(filters::$name));)*
        };
    }
    filters!(Outer: abs attr bool default first float int length round);
    filters!(Once: capitalize escape items join last lines list lower map reject rejectattr replace reverse safe
        select selectattr split string title trim upper urlencode);
    filters!(Pairwise: dictsort groupby max min sort unique);
    filter(
        InputAccess::Outer,
        "count",
        Value::from_function(filters::length),
    );
    filter(
        InputAccess::Outer,
        "d",
        Value::from_function(filters::default),
    );
    filter(
        InputAccess::Once,
        "e",
        Value::from_function(filters::escape),
    );
    filter(InputAccess::Once, "sum", Value::from_function(sum));

    macro_rules! tests {
        ($($name:literal: $function:ident,)*) => {
            $(
                names.tests.push($name);
                environment.add_test($name, tests::$function);
            )*
        };
    }
    tests!(
        "!=": is_ne, "<": is_lt, "<=": is_le, "==": is_eq, ">": is_gt, ">=": is_ge, "boolean": is_boolean,
        "defined": is_defined, "divisibleby": is_divisibleby, "endingwith": is_endingwith, "eq": is_eq,
        "equalto": is_eq, "escaped": is_safe, "even": is_even, "false": is_false, "float": is_float, "ge": is_ge,
        "greaterthan": is_gt, "gt": is_gt, "in": is_in, "int": is_integer, "integer": is_integer,
        "iterable": is_iterable, "le": is_le, "lessthan": is_lt, "lower": is_lower, "lt": is_lt,
        "mapping": is_mapping, "ne": is_ne, "none": is_none, "number": is_number, "odd": is_odd, "safe": is_safe,
        "sameas": is_sameas, "sequence": is_sequence, "startingwith": is_startingwith, "string": is_string,
        "true": is_true, "undefined": is_undefined, "upper": is_upper,
    );
    names.tests.push("plain_name");
    environment.add_test("plain_name", is_plain_name);

    // The filters that the dialect inserts. They are not in the list of names, so no template can use them.
    let ours = meter.clone();
    environment.add_filter(CHARGE_VALUE, move |value: &Value| -> Result<Value, Error> {
        ours.charge_value(value)?;
        Ok(value.clone())
    });
    let ours = meter.clone();
    environment.add_filter(CHARGE_OUTER, move |value: &Value| -> Result<Value, Error> {
        ours.charge_outer(value)?;
        Ok(value.clone())
    });
    let ours = meter.clone();
    environment.add_filter(CHARGE_RESULT, move |value: &Value| {
        ours.charge_result(value.clone())
    });
    environment.add_filter(ONLY_NUMBERS, |value: &Value| -> Result<Value, Error> {
        if value.is_number() || value.is_undefined() {
            return Ok(value.clone());
        }
        Err(Error::new(
            ErrorKind::InvalidOperation,
            "only numbers can be multiplied",
        ))
    });
    environment.add_filter(ONLY_PRESENT, |value: &Value| -> Result<Value, Error> {
        if value.is_undefined() || value.is_none() {
            return Err(Error::from(ErrorKind::UndefinedError));
        }
        Ok(value.clone())
    });
    let ours = meter.clone();
    environment.add_function(
        "range",
        move |lower: isize, upper: Option<isize>, step: Option<isize>| -> Result<Value, Error> {
            ours.charge_result(functions::range(lower, upper, step)?)
        },
    );
    let ours = meter.clone();
    environment.set_formatter(move |out, state, value| format_value(&ours, out, state, value));
    names
}

/// Adds numbers. It takes no start value: adding strings one by one would copy the first as often as there are others.
fn sum(state: &mut State, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    let (places, names): (&[Value], Kwargs) = from_args(&args)?;
    if places.len() > 2 || names.has("start") {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    Value::from_function(filters::sum).call(state, &args)
}

/// Writes a value into a part. Null is refused like a missing variable, because a mail must not address its reader as
/// "none". In HTML, the five special characters are escaped; unlike the engine's own escaping, this one leaves slashes
/// alone, so that links in the source can be found.
fn format_value(
    meter: &Meter,
    out: &mut Output,
    state: &mut State,
    value: &Value,
) -> Result<(), Error> {
    if value.is_none() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    meter.charge(NODE)?;
    let escape = matches!(state.auto_escape(), AutoEscape::Html) && !value.is_safe();
    let mut writer = Metered { out, meter, escape };
    let written = match value.as_str() {
        Some(text) => writer.write_str(text),
        None => write!(writer, "{value}"),
    };
    written.map_err(|_| {
        Error::from(if meter.is_empty() {
            ErrorKind::OutOfFuel
        } else {
            ErrorKind::WriteFailure
        })
    })
}

/// Writes until the allowance is used up. The target may be a captured block instead of the result.
struct Metered<'a, 'b> {
    out: &'a mut Output<'b>,
    meter: &'a Meter,
    escape: bool,
}

impl Write for Metered<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.meter
            .charge(text.len() as u64)
            .map_err(|_| fmt::Error)?;
        if !self.escape {
            return self.out.write_str(text);
        }
        let mut rest = text;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            let (before, special) = rest.split_at(at);
            let (escaped, after) = match special.as_bytes().first() {
                Some(b'&') => ("&amp;", 1),
                Some(b'<') => ("&lt;", 1),
                Some(b'>') => ("&gt;", 1),
                Some(b'"') => ("&quot;", 1),
                _ => ("&#39;", 1),
            };
            self.out.write_str(before)?;
            self.out.write_str(escaped)?;
            rest = special.get(after..).unwrap_or("");
        }
        self.out.write_str(rest)
    }
}
