//! Conditions and sums as people write them: the expressions of SQL, as far as a scan evaluates them.
//!
//! ```text
//! l_quantity < 24 and l_shipdate >= date '1994-01-01' and l_discount between 0.05 and 0.07
//! l_comment like '%fox%' or not (l_shipmode in ('AIR', 'MAIL')) or l_tax is null
//! sum(l_extendedprice * (1 - l_discount)) as revenue, count(*), avg(l_quantity)
//! ```
//!
//! Names of columns are written as they are, or in double quotes. `1.5` is exact; `1.5e0` is a floating-point number.

mod format;
mod moment;
mod token;

use crate::plan::{
    Aggregate, AggregateKind, Arithmetic, ColumnType, Comparison, DEPTH_MAX, Expression, Literal, Order,
};
pub use format::{FormatError, parse_format};
pub(crate) use moment::{date as parse_date, timestamp as parse_timestamp};
pub(crate) use token::exact as parse_exact;
use token::{Token, tokens};

/// A text that is not an expression, with where it stops being one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}, at `{}`", .rest.chars().take(40).collect::<String>())]
pub struct TextError {
    /// What is wrong.
    pub what: String,
    /// The text from there on.
    pub rest: String,
}

/// How deep parentheses may be.
const PARENTHESES_MAX: usize = 24;
const NO_AGGREGATE: &str = "expected sum, count, min, max or avg; `diskside.sql` in Python has others, such as median";
/// Words that are said where a scan's condition, column or order has ended, and mean what it does not do.
const OF_SQL: [&str; 13] = [
    "as", "case", "cast", "escape", "exists", "extract", "ilike", "interval", "nulls", "overlaps", "regexp", "similar",
    "when",
];

/// The condition that a text means.
///
/// # Errors
/// It is not one.
pub fn parse_filter(text: &str) -> Result<Expression, TextError> {
    let mut parser = Parser::new(text)?;
    let filter = parser.bounded()?;
    parser.end("AND, OR")?;
    Ok(filter)
}

/// Aggregates, with commas between them: `sum(a * b) as total, count(*)`. Without a name each is called as it is written.
///
/// # Errors
/// They are not.
pub fn parse_aggregates(text: &str) -> Result<Vec<Aggregate>, TextError> {
    let mut parser = Parser::new(text)?;
    let mut aggregates = Vec::new();
    loop {
        aggregates.push(parser.aggregate()?);
        if !parser.skip(&Token::Symbol(",")) {
            parser.end("`,`")?;
            return Ok(aggregates);
        }
    }
}

/// Names of columns, with commas between them.
///
/// # Errors
/// They are not.
pub fn parse_columns(text: &str) -> Result<Vec<String>, TextError> {
    let mut parser = Parser::new(text)?;
    let mut columns = Vec::new();
    loop {
        columns.push(parser.name("the name of a column")?);
        if !parser.skip(&Token::Symbol(",")) {
            parser.end("`,`")?;
            return Ok(columns);
        }
    }
}

/// Columns that rows are sorted by, with commas between them: `l_shipdate desc, l_orderkey`.
///
/// # Errors
/// They are not.
pub fn parse_order(text: &str) -> Result<Vec<Order>, TextError> {
    let mut parser = Parser::new(text)?;
    let mut order = Vec::new();
    loop {
        let column = parser.name("the name of a column")?;
        let is_descending = parser.skip_word("desc");
        if !is_descending {
            parser.skip_word("asc");
        }
        order.push(Order { column, is_descending });
        if !parser.skip(&Token::Symbol(",")) {
            parser.end("`,`")?;
            return Ok(order);
        }
    }
}

/// Types of columns, with commas between them: `l_quantity decimal(15, 2), l_shipdate date`.
///
/// # Errors
/// They are not.
pub fn parse_types(text: &str) -> Result<Vec<(String, ColumnType)>, TextError> {
    let mut parser = Parser::new(text)?;
    let mut types = Vec::new();
    loop {
        types.push((parser.name("the name of a column")?, parser.column_type()?));
        if !parser.skip(&Token::Symbol(",")) {
            parser.end("`,`")?;
            return Ok(types);
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    /// Each with where it begins in the text.
    tokens: Vec<(usize, Token)>,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self, TextError> {
        Ok(Self { text, tokens: tokens(text)?, at: 0, depth: 0 })
    }

    fn position(&self) -> usize {
        self.tokens.get(self.at).map_or(self.text.len(), |(start, _)| *start)
    }

    fn wrong(&self, what: impl Into<String>) -> TextError {
        let rest = &self.text[self.position()..];
        let rest = if rest.is_empty() { "the end".to_owned() } else { rest.to_owned() };
        TextError { what: what.into(), rest }
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn skip(&mut self, wanted: &Token) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    /// Whether one of these symbols is behind the next token.
    fn is_followed_by(&self, symbols: &[&str]) -> bool {
        matches!(self.tokens.get(self.at + 1), Some((_, Token::Symbol(found))) if symbols.contains(found))
    }

    fn expect(&mut self, symbol: &'static str) -> Result<(), TextError> {
        if self.skip(&Token::Symbol(symbol)) { Ok(()) } else { Err(self.wrong(format!("expected `{symbol}`"))) }
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(found)) if found.eq_ignore_ascii_case(word))
    }

    fn skip_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    fn end(&self, before: &str) -> Result<(), TextError> {
        if self.at == self.tokens.len() {
            return Ok(());
        }
        // `Region Name`, or `count(*)`.
        let is_name_behind = matches!(self.peek(), Some(Token::Word(_) | Token::Symbol("(")));
        let is_name = matches!(self.at.checked_sub(1).map(|at| &self.tokens[at].1), Some(Token::Word(_)));
        let word = |at: Option<usize>| match at.and_then(|at| self.tokens.get(at)) {
            Some((_, Token::Word(word))) => word.to_ascii_lowercase(),
            _ => String::new(),
        };
        let of_sql =
            [word(Some(self.at)), word(self.at.checked_sub(1))].into_iter().find(|word| OF_SQL.contains(&&word[..]));
        let hint = match of_sql {
            Some(word) => format!("; a scan has no {}, which `diskside.sql` in Python has", word.to_ascii_uppercase()),
            None if is_name && is_name_behind => "; a name with spaces or signs is in \"double quotes\"".into(),
            None => String::new(),
        };
        Err(self.wrong(format!("expected {before}, or the end{hint}")))
    }

    fn name(&mut self, what: &str) -> Result<String, TextError> {
        match self.peek() {
            Some(Token::Word(name) | Token::Quoted(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.wrong(format!("expected {what}"))),
        }
    }

    fn column_type(&mut self) -> Result<ColumnType, TextError> {
        const KNOWN: &str =
            "expected boolean, integer, float, decimal(DIGITS, BEHIND THE POINT), date, timestamp or text";
        let Some(Token::Word(word)) = self.peek() else { return Err(self.wrong(KNOWN)) };
        let known = match word.to_ascii_lowercase().as_str() {
            "boolean" => ColumnType::Boolean,
            "integer" => ColumnType::Integer,
            "float" => ColumnType::Float,
            "date" => ColumnType::Date,
            "timestamp" => ColumnType::Timestamp,
            "text" => ColumnType::Text,
            "decimal" => {
                self.at += 1;
                return self.decimal();
            }
            _ => return Err(self.wrong(KNOWN)),
        };
        self.at += 1;
        Ok(known)
    }

    fn decimal(&mut self) -> Result<ColumnType, TextError> {
        self.expect("(")?;
        let precision = self.count()?;
        self.expect(",")?;
        let scale = self.count()?;
        let decimal = ColumnType::decimal(precision, scale);
        let decimal =
            decimal.ok_or_else(|| self.wrong("a decimal has 1 to 38 digits, and not more behind the point"))?;
        self.expect(")")?;
        Ok(decimal)
    }

    fn count(&mut self) -> Result<u8, TextError> {
        match self.peek() {
            Some(Token::Number { digits, scale: 0 }) => {
                let count = u8::try_from(*digits).map_err(|_| self.wrong("this is too many digits"))?;
                self.at += 1;
                Ok(count)
            }
            _ => Err(self.wrong("expected a number of digits")),
        }
    }

    fn aggregate(&mut self) -> Result<Aggregate, TextError> {
        let start = self.position();
        let kind = match self.peek() {
            Some(Token::Word(word)) => match word.to_ascii_lowercase().as_str() {
                "count" => AggregateKind::Count,
                "sum" => AggregateKind::Sum,
                "min" => AggregateKind::Min,
                "max" => AggregateKind::Max,
                "avg" => AggregateKind::Avg,
                _ => return Err(self.wrong(NO_AGGREGATE)),
            },
            _ => return Err(self.wrong(NO_AGGREGATE)),
        };
        self.at += 1;
        self.expect("(")?;
        if self.is_word("distinct") && !self.is_followed_by(&[")"]) {
            return Err(
                self.wrong("there is no DISTINCT: group the rows by the column, which gives one row for each value, or count them by `diskside.sql` in Python; a column of this name has double quotes")
            );
        }
        let counts_rows = kind == AggregateKind::Count && self.skip(&Token::Symbol("*"));
        let input = if counts_rows { None } else { Some(self.bounded()?) };
        self.expect(")")?;
        let written = self.text[start..self.position()].trim().to_owned();
        let name = if self.skip_word("as") { self.name("a name")? } else { written };
        Ok(Aggregate { kind, input, name })
    }

    /// A whole expression, no deeper than plans have them.
    fn bounded(&mut self) -> Result<Expression, TextError> {
        let whole = self.expression()?;
        if whole.depth() > DEPTH_MAX { Err(self.wrong("this is nested too deeply")) } else { Ok(whole) }
    }

    fn expression(&mut self) -> Result<Expression, TextError> {
        if self.depth == PARENTHESES_MAX {
            return Err(self.wrong("this is nested too deeply"));
        }
        self.depth += 1;
        let mut any = vec![self.conjunction()?];
        while self.skip_word("or") {
            any.push(self.conjunction()?);
        }
        self.depth -= 1;
        Ok(one_or(any, Expression::Or))
    }

    fn conjunction(&mut self) -> Result<Expression, TextError> {
        let mut all = Vec::new();
        loop {
            match self.negation()? {
                Expression::And(more) => all.extend(more),
                one => all.push(one),
            }
            if !self.skip_word("and") {
                return Ok(one_or(all, Expression::And));
            }
        }
    }

    fn negation(&mut self) -> Result<Expression, TextError> {
        let mut negations = 0;
        while self.skip_word("not") {
            negations += 1;
        }
        let one = self.predicate()?;
        // Twice is not at all, in three values too.
        Ok(if negations % 2 == 1 { not(one) } else { one })
    }

    fn predicate(&mut self) -> Result<Expression, TextError> {
        let left = self.sum()?;
        if let Some(how) = self.comparison() {
            return Ok(Expression::Compare(how, Box::new(left), Box::new(self.sum()?)));
        }
        if self.skip_word("is") {
            let negated = self.skip_word("not");
            if !self.skip_word("null") {
                return Err(self.wrong("expected NULL"));
            }
            let found = Expression::IsNull(Box::new(left));
            return Ok(if negated { not(found) } else { found });
        }
        let negated = self.skip_word("not");
        let found = if self.skip_word("in") {
            self.expect("(")?;
            let mut among = Vec::new();
            loop {
                match self.sum()? {
                    Expression::Literal(literal) => among.push(literal),
                    _ => return Err(self.wrong("IN takes values")),
                }
                if !self.skip(&Token::Symbol(",")) {
                    break;
                }
            }
            self.expect(")")?;
            Expression::In(Box::new(left), among)
        } else if self.skip_word("between") {
            let low = self.sum()?;
            if !self.skip_word("and") {
                return Err(self.wrong("expected AND: between LOW and HIGH"));
            }
            let high = self.sum()?;
            let (above, below) = (Comparison::GreaterOrEqual, Comparison::LessOrEqual);
            let above = Expression::Compare(above, Box::new(left.clone()), Box::new(low));
            Expression::And(vec![above, Expression::Compare(below, Box::new(left), Box::new(high))])
        } else if self.skip_word("like") {
            match self.peek() {
                Some(Token::Text(pattern)) => {
                    let pattern = pattern.clone();
                    self.at += 1;
                    Expression::Like(Box::new(left), pattern)
                }
                _ => return Err(self.wrong("LIKE takes a text in single quotes")),
            }
        } else if negated {
            return Err(self.wrong("expected IN, BETWEEN or LIKE behind NOT"));
        } else {
            return Ok(left);
        };
        Ok(if negated { not(found) } else { found })
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let Some(Token::Symbol(symbol)) = self.peek() else { return None };
        let how = match *symbol {
            "=" | "==" => Comparison::Equal,
            "<>" | "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return None,
        };
        self.at += 1;
        Some(how)
    }

    fn sum(&mut self) -> Result<Expression, TextError> {
        let mut left = self.product()?;
        loop {
            let how = match self.peek() {
                Some(Token::Symbol("+")) => Arithmetic::Add,
                Some(Token::Symbol("-")) => Arithmetic::Subtract,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Expression::Arithmetic(how, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Expression, TextError> {
        let mut left = self.value()?;
        while self.skip(&Token::Symbol("*")) {
            left = Expression::Arithmetic(Arithmetic::Multiply, Box::new(left), Box::new(self.value()?));
        }
        Ok(left)
    }

    fn value(&mut self) -> Result<Expression, TextError> {
        if self.skip(&Token::Symbol("(")) {
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok(inner);
        }
        let negative = self.skip(&Token::Symbol("-"));
        let token = self.peek().cloned().ok_or_else(|| self.wrong("expected a value"))?;
        let literal = match token {
            Token::Number { digits, scale } => {
                Literal::Number { digits: if negative { -digits } else { digits }, scale }
            }
            Token::Float(value) => Literal::Float(if negative { -value } else { value }),
            Token::Symbol("-") if negative => return Err(self.wrong("expected a value")),
            _ if negative => {
                let zero = Expression::Literal(Literal::Number { digits: 0, scale: 0 });
                return Ok(Expression::Arithmetic(Arithmetic::Subtract, Box::new(zero), Box::new(self.value()?)));
            }
            Token::Text(text) => Literal::Text(text),
            Token::Word(word) => match self.word(&word)? {
                Some(literal) => literal,
                None if self.is_followed_by(&["("]) => {
                    return Err(self.wrong(format!("`{word}` is a function: a scan computes with +, - and * alone")));
                }
                None => {
                    self.at += 1;
                    return Ok(Expression::Column(word));
                }
            },
            Token::Quoted(name) => {
                self.at += 1;
                return Ok(Expression::Column(name));
            }
            Token::Symbol(_) => return Err(self.wrong("expected a value")),
        };
        self.at += 1;
        Ok(Expression::Literal(literal))
    }

    /// The meaning of a word that is not the name of a column. `date` and `timestamp` are names unless a text follows.
    fn word(&mut self, word: &str) -> Result<Option<Literal>, TextError> {
        let text = match self.tokens.get(self.at + 1) {
            Some((_, Token::Text(text))) => Some(text.clone()),
            _ => None,
        };
        Ok(Some(match (word.to_ascii_lowercase().as_str(), text) {
            ("true", _) => Literal::Boolean(true),
            ("false", _) => Literal::Boolean(false),
            ("null", _) => Literal::Null,
            ("date", Some(text)) => {
                let days =
                    moment::date(&text).ok_or_else(|| self.wrong("a date is a day of the calendar, 'YYYY-MM-DD'"))?;
                self.at += 1;
                Literal::Date(days)
            }
            ("timestamp", Some(text)) => {
                let micros = moment::timestamp(&text);
                let micros = micros.ok_or_else(|| self.wrong("a timestamp is 'YYYY-MM-DD HH:MM:SS.ffffff'"))?;
                self.at += 1;
                Literal::Timestamp(micros)
            }
            ("and" | "or" | "not" | "in" | "is" | "between" | "like", _) => {
                return Err(self.wrong("expected a value; a column of this name is written in double quotes"));
            }
            _ => return Ok(None),
        }))
    }
}

fn not(one: Expression) -> Expression {
    Expression::Not(Box::new(one))
}

fn one_or(mut all: Vec<Expression>, many: impl Fn(Vec<Expression>) -> Expression) -> Expression {
    if all.len() == 1 { all.remove(0) } else { many(all) }
}

#[cfg(test)]
mod tests;
