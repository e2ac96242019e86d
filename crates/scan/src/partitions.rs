//! Columns that directories say: all rows of `year=2024/kind=a%2Fb/x.parquet` have `year` 2024 and `kind` `a/b`, as Hive and Spark
//! write tables.

use crate::plan::{ColumnType, Expression, Literal};
use crate::text::{parse_date, parse_exact, parse_timestamp};
use percent_encoding::percent_decode;

/// The directory of rows whose value is NULL.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";
/// The most columns that directories say.
const COLUMNS_MAX: usize = 64;

/// The columns that the directories of some files say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Partitions {
    /// Their names and types, the outermost first.
    pub columns: Vec<(String, ColumnType)>,
    /// Of each file its value of each column.
    pub values: Vec<Vec<Literal>>,
}

/// Why the directories of files say no columns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// Two files do not have the same columns.
    #[error(
        "{first} has {} in its path, and {other} has {}: write the same in all, or leave columns of paths out (--no-partitions)",
        listed(.of_first), listed(.of_other)
    )]
    Differ {
        /// A file.
        first: String,
        /// Its columns.
        of_first: Vec<String>,
        /// One with others.
        other: String,
        /// Its columns.
        of_other: Vec<String>,
    },
    /// The name of a directory is not UTF-8.
    #[error("{file}: its directory {directory:?} is not UTF-8: leave columns of paths out (--no-partitions)")]
    NotText {
        /// The file.
        file: String,
        /// The directory.
        directory: String,
    },
    /// Two directories say the same column.
    #[error("{file}: its path says `{column}` twice: leave columns of paths out (--no-partitions)")]
    Twice {
        /// The file.
        file: String,
        /// The column.
        column: String,
    },
    /// There are too many columns.
    #[error("{file}: its path says {count} columns, and at most {COLUMNS_MAX} are read")]
    TooMany {
        /// The file.
        file: String,
        /// How many there are.
        count: usize,
    },
    /// A value is not of the type that its column was given.
    #[error(
        "{file}: '{value}' in its path is not of the type of `{column}`; say what it is, such as --types '{column} text'"
    )]
    Value {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// Its value.
        value: String,
    },
    /// A value that a table says is not of its column's type.
    #[error("{file}: its table says that `{column}` is '{value}', which is not of the type of the column")]
    OfTable {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// Its value.
        value: String,
    },
    /// A table says more or fewer values than columns.
    #[error("{file}: its table says {count} values for {wanted} columns")]
    Count {
        /// The file.
        file: String,
        /// How many values there are.
        count: usize,
        /// How many columns there are.
        wanted: usize,
    },
}

impl Partitions {
    /// Those of files, each with its name for messages and the bytes of its path. The type of a column is what `types` says,
    /// else a whole number or a date if all of its values are one, else a text.
    ///
    /// # Errors
    /// The files do not have the same columns, or a value is not of its column's type.
    pub fn of(files: &[(String, &[u8])], types: &[(String, ColumnType)]) -> Result<Self, PartitionError> {
        let said = files.iter().map(|(name, path)| said(name, path)).collect::<Result<Vec<_>, _>>()?;
        let names = |said: &[(String, Option<String>)]| said.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let Some(first) = said.first().map(|said| names(said)) else { return Ok(Self::default()) };
        for (said, (other, _)) in said.iter().zip(files) {
            if said.iter().map(|(name, _)| name).ne(&first) {
                let (of_first, of_other) = (first, names(said));
                return Err(PartitionError::Differ {
                    first: files[0].0.clone(),
                    of_first,
                    other: other.clone(),
                    of_other,
                });
            }
        }
        let column = |(index, name): (usize, String)| {
            let wanted = types.iter().find(|(wanted, _)| *wanted == name).map(|(_, of)| *of);
            let of = wanted.unwrap_or_else(|| guess(said.iter().filter_map(|said| said[index].1.as_deref())));
            (name, of)
        };
        let columns: Vec<_> = first.into_iter().enumerate().map(column).collect();
        let literal = |(file, _): &(String, _), (name, text): (String, Option<String>), of: ColumnType| {
            let Some(text) = text else { return Ok(Literal::Null) };
            let value = value(&text, of);
            value.ok_or_else(|| PartitionError::Value { file: file.clone(), column: name, value: text })
        };
        let values = said.into_iter().zip(files).map(|(said, file)| {
            said.into_iter().zip(&columns).map(|(said, (_, of))| literal(file, said, *of)).collect()
        });
        let values = values.collect::<Result<_, _>>()?;
        Ok(Self { columns, values })
    }

    /// Those that the metadata of a table says of its files, each with its name for messages and a text for each column; `None` is NULL.
    ///
    /// # Errors
    /// A value is not of its column's type.
    pub fn of_table(
        columns: Vec<(String, ColumnType)>,
        files: &[(String, Vec<Option<String>>)],
    ) -> Result<Self, PartitionError> {
        let literal = |file: &String, (text, (name, of)): (&Option<String>, &(String, ColumnType))| {
            let Some(text) = text else { return Ok(Literal::Null) };
            value(text, *of).ok_or_else(|| PartitionError::OfTable {
                file: file.clone(),
                column: name.clone(),
                value: text.clone(),
            })
        };
        let values = files.iter().map(|(file, texts)| {
            if texts.len() != columns.len() {
                let (count, wanted) = (texts.len(), columns.len());
                return Err(PartitionError::Count { file: file.clone(), count, wanted });
            }
            texts.iter().zip(&columns).map(|pair| literal(file, pair)).collect()
        });
        let values = values.collect::<Result<_, _>>()?;
        Ok(Self { columns, values })
    }

    /// Whether a row of this file may fulfil a condition.
    #[must_use]
    pub fn may_fulfil(&self, file: usize, filter: &Expression) -> bool {
        filter.given(&|name| self.value(file, name)).may_be_true()
    }

    fn value(&self, file: usize, name: &str) -> Option<Literal> {
        let column = self.columns.iter().position(|(column, _)| column == name)?;
        Some(self.values[file][column].clone())
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "no column".into() } else { names.join(", ") }
}

/// The columns of a path and their values; `None` is NULL.
fn said(file: &str, path: &[u8]) -> Result<Vec<(String, Option<String>)>, PartitionError> {
    let mut directories: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    // The last name is the file's.
    directories.pop();
    let mut found: Vec<(String, Option<String>)> = Vec::new();
    for directory in directories {
        let Some(at) = directory.iter().position(|byte| *byte == b'=').filter(|at| *at > 0) else { continue };
        let text = |bytes: &[u8]| match percent_decode(bytes).decode_utf8() {
            Ok(text) => Ok(text.into_owned()),
            Err(_) => Err(PartitionError::NotText {
                file: file.to_owned(),
                directory: String::from_utf8_lossy(directory).into_owned(),
            }),
        };
        let (column, value) = (text(&directory[..at])?, text(&directory[at + 1..])?);
        if found.iter().any(|(known, _)| *known == column) {
            return Err(PartitionError::Twice { file: file.to_owned(), column });
        }
        found.push((column, (value != NULL).then_some(value)));
    }
    if found.len() > COLUMNS_MAX {
        return Err(PartitionError::TooMany { file: file.to_owned(), count: found.len() });
    }
    Ok(found)
}

fn guess<'a>(values: impl Iterator<Item = &'a str> + Clone) -> ColumnType {
    let all_are = |of| values.clone().all(|text| value(text, of).is_some());
    match () {
        () if values.clone().next().is_none() => ColumnType::Text,
        () if all_are(ColumnType::Integer) => ColumnType::Integer,
        () if all_are(ColumnType::Date) => ColumnType::Date,
        () => ColumnType::Text,
    }
}

fn value(text: &str, of: ColumnType) -> Option<Literal> {
    match of {
        ColumnType::Text => Some(Literal::Text(text.to_owned())),
        ColumnType::Boolean => match text {
            "true" => Some(Literal::Boolean(true)),
            "false" => Some(Literal::Boolean(false)),
            _ => None,
        },
        ColumnType::Integer => {
            let (digits, scale) = parse_exact(text).filter(|(digits, _)| i64::try_from(*digits).is_ok())?;
            (scale == 0 && !text.contains('.')).then_some(Literal::Number { digits, scale })
        }
        ColumnType::Float => text.parse().ok().map(Literal::Float),
        ColumnType::Decimal { precision, scale } => {
            let (digits, behind) = parse_exact(text)?;
            let factor = 10_i128.pow(u32::from(scale.checked_sub(behind)?));
            let digits = digits.checked_mul(factor).filter(|all| all.unsigned_abs() < 10_u128.pow(precision.into()))?;
            Some(Literal::Number { digits, scale })
        }
        ColumnType::Date => parse_date(text).map(Literal::Date),
        ColumnType::Timestamp => parse_timestamp(text).map(Literal::Timestamp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse_filter;

    fn of(paths: &[&str], types: &[(String, ColumnType)]) -> Result<Partitions, PartitionError> {
        let files: Vec<_> = paths.iter().map(|path| ((*path).to_owned(), path.as_bytes())).collect();
        Partitions::of(&files, types)
    }

    fn whole(digits: i128) -> Literal {
        Literal::Number { digits, scale: 0 }
    }

    #[test]
    fn types_fit_all_values() {
        let paths = ["t/y=2024/d=2024-02-29/k=a%2Fb/x", "t/y=-07/d=__HIVE_DEFAULT_PARTITION__/k=1/y=z.csv"];
        let found = of(&paths, &[]).unwrap();
        let names = [("y", ColumnType::Integer), ("d", ColumnType::Date), ("k", ColumnType::Text)];
        assert_eq!(found.columns, names.map(|(name, of)| (name.to_owned(), of)));
        assert_eq!(found.values[0], [whole(2024), Literal::Date(19_782), Literal::Text("a/b".into())]);
        assert_eq!(found.values[1], [whole(-7), Literal::Null, Literal::Text("1".into())]);
        let filter = parse_filter("y > 2000 and x < 1").unwrap();
        assert!(found.may_fulfil(0, &filter) && !found.may_fulfil(1, &filter));
    }

    #[test]
    fn types_may_be_said() {
        let types =
            [("y".to_owned(), ColumnType::Text), ("p".to_owned(), ColumnType::Decimal { precision: 5, scale: 2 })];
        let found = of(&["y=01/p=-1.5/x"], &types).unwrap();
        assert_eq!(found.values, [[Literal::Text("01".into()), Literal::Number { digits: -150, scale: 2 }]]);
        let wrong = of(&["y=01/p=1.555/x"], &types).unwrap_err().to_string();
        assert!(wrong.starts_with("y=01/p=1.555/x: '1.555' in its path is not of the type of `p`"), "{wrong}");
    }

    #[test]
    fn tables_say_values_as_texts() {
        let columns = || vec![("k".to_owned(), ColumnType::Text), ("f".to_owned(), ColumnType::Float)];
        let file = |values: &[Option<&str>]| {
            ("a".to_owned(), values.iter().map(|value| value.map(str::to_owned)).collect::<Vec<_>>())
        };
        let found =
            Partitions::of_table(columns(), &[file(&[Some("01"), None]), file(&[Some(""), Some("-0.5")])]).unwrap();
        assert_eq!(found.values[0], [Literal::Text("01".into()), Literal::Null]);
        assert_eq!(found.values[1], [Literal::Text(String::new()), Literal::Float(-0.5)]);
        let wrong = Partitions::of_table(columns(), &[file(&[None, Some("x")])]);
        assert!(matches!(wrong, Err(PartitionError::OfTable { column, .. }) if column == "f"));
        let few = Partitions::of_table(columns(), &[file(&[None])]);
        assert!(matches!(few, Err(PartitionError::Count { count: 1, wanted: 2, .. })));
    }

    #[test]
    fn files_with_other_columns_are_told_apart() {
        let differ = of(&["a=1/b=2/x", "a=1/y"], &[]).unwrap_err().to_string();
        assert!(differ.starts_with("a=1/b=2/x has a, b in its path, and a=1/y has a:"), "{differ}");
        assert!(matches!(of(&["a=1/a=2/x"], &[]), Err(PartitionError::Twice { .. })));
        assert!(matches!(of(&["a=%ff/x"], &[]), Err(PartitionError::NotText { .. })));
        assert_eq!(of(&["x=1", "=2/y"], &[]).unwrap(), Partitions { columns: vec![], values: vec![vec![], vec![]] });
    }
}
