//! How messages say that two things which a condition compares are of different kinds.

use crate::bind::Binder;
use crate::columns::{Class, Kind};
use crate::lines::type_name;
use diskside_scan::{Failure, Literal};

/// Characters of a text that a message shows.
const SHOWN_LEN: usize = 40;

impl Binder<'_> {
    /// A column, or else something that is computed, does not go with a value.
    pub(crate) fn mismatch(&self, slot: Option<usize>, class: Class, literal: &Literal) -> Failure {
        let hint: &str = match (class, literal) {
            (Class::Text, Literal::Number { digits, scale }) => {
                &format!(": a text is in quotes, as in '{}'", decimal(*digits, *scale))
            }
            (Class::Text, Literal::Boolean(value)) => &format!(": a text is in quotes, as in '{value}'"),
            (Class::Text, _) => ": compare it with a text in 'single quotes'",
            (Class::Boolean, _) => ": compare it with true or false, by = or <>",
            (Class::Exact(Kind::Day, _), _) => "; a date is written date '1994-01-01'",
            (Class::Exact(Kind::Time, _), _) => "; a timestamp is written timestamp '1994-01-01 00:00:00'",
            (Class::Other, _) => {
                ", which a scan does not do with this type: output it whole, and compare it where the rows are read"
            }
            (Class::Exact(..) | Class::Float, Literal::Text(text))
                if text.trim().parse::<f64>().is_ok_and(f64::is_finite) =>
            {
                &format!(": a number has no quotes, as in {}", text.trim())
            }
            _ => "",
        };
        self.wrong(format!("{} compared with {}{hint}", self.compared(slot, class), value(literal)))
    }

    /// Two columns, or things that are computed, do not go together.
    pub(crate) fn mismatch_of_two(&self, left: (Option<usize>, Class), right: (Option<usize>, Class)) -> Failure {
        let right = match right {
            (Some(slot), _) => {
                format!("column `{}` of type {}", self.field(slot).name(), type_name(self.field(slot).data_type()))
            }
            (None, class) => class.name().to_owned(),
        };
        self.wrong(format!("{} compared with {right}", self.compared(left.0, left.1)))
    }

    /// A pattern is for texts alone.
    pub(crate) fn mismatch_of_like(&self, slot: Option<usize>, class: Class) -> Failure {
        self.wrong(format!("{} compared with a pattern: LIKE is of a column of texts", self.compared(slot, class)))
    }

    fn compared(&self, slot: Option<usize>, class: Class) -> String {
        let column = slot.map(|slot| self.field(slot));
        column.map_or_else(
            || format!("{} is", class.name()),
            |field| format!("column `{}` is of type {}, and is", field.name(), type_name(field.data_type())),
        )
    }
}

fn value(literal: &Literal) -> String {
    match literal {
        Literal::Null => "NULL".into(),
        Literal::Boolean(value) => format!("{value}"),
        Literal::Number { digits, scale } => format!("a number, {}", decimal(*digits, *scale)),
        Literal::Float(value) => format!("a number, {value:e}"),
        Literal::Text(text) if text.chars().nth(SHOWN_LEN).is_some() => "a text".into(),
        Literal::Text(text) => format!("a text, '{}'", text.replace('\'', "''")),
        Literal::Date(_) => "a date".into(),
        Literal::Timestamp(_) => "a timestamp".into(),
    }
}

fn decimal(digits: i128, scale: u8) -> String {
    let (sign, behind) = (if digits < 0 { "-" } else { "" }, usize::from(scale));
    let digits = format!("{:0>width$}", digits.unsigned_abs(), width = behind + 1);
    let (whole, fraction) = digits.split_at(digits.len() - behind);
    format!("{sign}{whole}{}{fraction}", if behind > 0 { "." } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_they_are_written() {
        for (digits, scale, wanted) in [(3, 0, "3"), (-25, 1, "-2.5"), (5, 2, "0.05"), (-5, 3, "-0.005")] {
            assert_eq!(decimal(digits, scale), wanted);
        }
        assert_eq!(value(&Literal::Text("it's".into())), "a text, 'it''s'");
    }
}
