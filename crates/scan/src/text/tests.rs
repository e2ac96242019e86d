//! Texts that are conditions, columns and aggregates, and those that are not.

use super::*;
use crate::plan::Plan;
use proptest::prelude::*;

#[test]
fn types_and_orders_are_lists() {
    let types = parse_types("price decimal(15, 2), \"a day\" date").unwrap();
    let price = ("price".to_owned(), ColumnType::Decimal { precision: 15, scale: 2 });
    assert_eq!(types, [price, ("a day".to_owned(), ColumnType::Date)]);
    for wrong in ["a", "a number", "a decimal(39, 2)", "a decimal(2, 3)", "a date,", "a decimal(300, 2)"] {
        assert!(parse_types(wrong).is_err(), "{wrong}");
    }
    let order = |column: &str, is_descending| Order { column: column.into(), is_descending };
    assert_eq!(parse_order("a DESC, b, c asc").unwrap(), [order("a", true), order("b", false), order("c", false)]);
    assert!(parse_order("a up").is_err() && parse_order("").is_err());
}

fn column(name: &str) -> Box<Expression> {
    Box::new(Expression::Column(name.into()))
}

fn number(digits: i128, scale: u8) -> Box<Expression> {
    Box::new(Expression::Literal(Literal::Number { digits, scale }))
}

#[test]
fn and_binds_before_or_and_times_before_plus() {
    let less = |name: &str, than: i128| Expression::Compare(Comparison::Less, column(name), number(than, 0));
    let filter = parse_filter("a < 1 AND b < 2 or c < 3").unwrap();
    assert_eq!(filter, Expression::Or(vec![Expression::And(vec![less("a", 1), less("b", 2)]), less("c", 3)]));
    let sum = Expression::Arithmetic(
        Arithmetic::Add,
        column("a"),
        Box::new(Expression::Arithmetic(Arithmetic::Multiply, column("b"), number(-25, 1))),
    );
    assert_eq!(parse_filter("a + b * -2.5"), Ok(sum));
    let negative = Expression::Arithmetic(Arithmetic::Subtract, number(0, 0), column("a"));
    assert_eq!(parse_filter("-a"), Ok(negative.clone()));
    assert_eq!(parse_filter("-(a)"), Ok(negative));
}

#[test]
fn dates_texts_and_lists_are_values() {
    let date = Box::new(Expression::Literal(Literal::Date(8766)));
    let after = Expression::Compare(Comparison::GreaterOrEqual, column("day"), date);
    let among = vec![Literal::Text("it's".into()), Literal::Null];
    let listed = Expression::Not(Box::new(Expression::In(column("Mode x"), among)));
    let both = parse_filter("day >= date '1994-01-01' and \"Mode x\" not in ('it''s', null)");
    assert_eq!(both, Ok(Expression::And(vec![after, listed])));
}

#[test]
fn aggregates_are_called_as_they_are_written_or_as_one_says() {
    let names = parse_aggregates("sum(a * b) as total, COUNT( * ), avg(\"c\")").unwrap();
    let names: Vec<_> = names.into_iter().map(|aggregate| aggregate.name).collect();
    assert_eq!(names, ["total", "COUNT( * )", "avg(\"c\")"]);
}

#[test]
fn errors_say_what_was_expected_and_where() {
    for (text, told) in [
        ("a <", "expected a value, at `the end`"),
        ("a < 1 b", "expected AND, OR, or the end, at `b`"),
        (
            "a ilike 'x'",
            "expected AND, OR, or the end; a scan has no ILIKE, which `diskside.sql` in Python has, at `ilike 'x'`",
        ),
        (
            "a < date '1994-01-01' - interval '1 month'",
            "expected AND, OR, or the end; a scan has no INTERVAL, which `diskside.sql` in Python has, at `'1 month'`",
        ),
        ("upper(a) = 'X'", "`upper` is a function: a scan computes with +, - and * alone, at `upper(a) = 'X'`"),
        ("a < --b", "expected a value, at `-b`"),
        (
            "a / 2 > b",
            "a scan does not divide: compare with a product, such as `a > 2 * b` for `a / 2 > b`, at `/ 2 > b`",
        ),
        ("a like b", "LIKE takes a text in single quotes, at `b`"),
        ("a = 'x", "a text has no closing quote, at `'x`"),
        ("a = date '1994-02-30'", "a date is a day of the calendar, 'YYYY-MM-DD', at `date '1994-02-30'`"),
        ("a ; b", "unknown character, at `; b`"),
        (
            "addr.zip = '1'",
            "a scan reaches no field within a nested column: output the column whole, and compare its fields where the rows are \
             read; a name that has a point itself is in \"double quotes\", at `.zip = '1'`",
        ),
        ("(a = 1", "expected `)`, at `the end`"),
        (
            "Region Name = 'EU'",
            "expected AND, OR, or the end; a name with spaces or signs is in \"double quotes\", at `Name = 'EU'`",
        ),
    ] {
        assert_eq!(parse_filter(text).unwrap_err().to_string(), told, "{text}");
    }
    let distinct = parse_aggregates("count(distinct a)").unwrap_err();
    assert!(distinct.what.starts_with("there is no DISTINCT"), "{distinct}");
    assert!(parse_aggregates("count(distinct)").is_ok());
    assert_eq!(parse_aggregates("median(a)").unwrap_err().what, NO_AGGREGATE);
}

proptest! {
    /// A text that parses makes a plan that a server takes.
    #[test]
    fn no_text_makes_it_panic(text in r#"(a|b|1|-2\.50|'x'|\(|\)| and | or | not | in | between | like |<|=|,|\*|\+|-| null|"q"|date '2000-01-01'){0,60}"#) {
        if let Ok(filter) = parse_filter(&text) {
            let plan = Plan { filter: Some(filter), ..Plan::default() };
            prop_assert_eq!(Plan::from_bytes(&plan.to_bytes()), Ok(plan));
        }
        let _ = parse_aggregates(&text);
    }
}
