//! Columns that rows are grouped by: each value of such a column has a number, its code.

use crate::columns::Class;
use crate::evaluate::Texts;
use crate::result::exact_array;
use crate::value::exact_digits;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int32Type;
use arrow_array::{Array as _, ArrayRef, BooleanArray, DictionaryArray, StringArray, StringViewArray};
use arrow_schema::{DataType, Field};
use hashbrown::DefaultHashBuilder;
use hashbrown::hash_table::{Entry, HashTable};
use std::hash::BuildHasher as _;
use std::sync::Arc;

/// Few values are found faster by looking at all.
const FEW: usize = 16;
/// Views of texts whose codes are kept at hand, and the odd number (2^64 by the golden ratio) that spreads them.
const VIEWS: usize = 64;
const HASH: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bytes that a value takes, about, besides its text.
const VALUE_LEN: usize = 64;

/// A column that rows are grouped by, and its values so far; their numbers are their codes.
pub(crate) struct Key {
    slot: usize,
    name: String,
    data_type: DataType,
    values: Vec<KeyValue>,
    /// The codes, by the values' hashes.
    codes: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// The dictionary of the last rows, and the codes of its values as far as they are known.
    dictionary: Option<(ArrayRef, Vec<Option<u32>>)>,
}

enum KeyValue {
    Null,
    Exact(i128),
    Text(Box<str>),
    Boolean(bool),
}

/// A value that may not be kept yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum KeyRef<'a> {
    Null,
    Exact(i128),
    Text(&'a str),
    Boolean(bool),
}

impl KeyValue {
    fn as_ref(&self) -> KeyRef<'_> {
        match self {
            Self::Null => KeyRef::Null,
            Self::Exact(value) => KeyRef::Exact(*value),
            Self::Text(text) => KeyRef::Text(text),
            Self::Boolean(value) => KeyRef::Boolean(*value),
        }
    }
}

impl KeyRef<'_> {
    fn kept(self) -> KeyValue {
        match self {
            Self::Null => KeyValue::Null,
            Self::Exact(value) => KeyValue::Exact(value),
            Self::Text(text) => KeyValue::Text(text.into()),
            Self::Boolean(value) => KeyValue::Boolean(value),
        }
    }
}

impl Key {
    pub(crate) fn new(slot: usize, name: String, data_type: DataType) -> Self {
        Self {
            slot,
            name,
            data_type,
            values: Vec::new(),
            codes: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            dictionary: None,
        }
    }

    /// The same column, without values.
    pub(crate) fn fresh(&self) -> Self {
        Self::new(self.slot, self.name.clone(), self.data_type.clone())
    }

    /// How many values it has so far.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// As a column of a result.
    pub(crate) fn field(&self) -> Field {
        Field::new(&self.name, self.data_type.clone(), true)
    }

    /// The values with these codes.
    pub(crate) fn array(&self, codes: impl Iterator<Item = u32>) -> ArrayRef {
        key_array(&self.data_type, codes.map(|code| &self.values[code as usize]))
    }

    /// The codes of the values of another one with the same column, which are added to those of this one.
    pub(crate) fn codes_of_key(&mut self, other: &Self, len: &mut usize) -> Vec<u32> {
        other.values.iter().map(|value| self.code(value.as_ref(), len)).collect()
    }

    /// The codes of rows; `len` counts the bytes that new values take.
    pub(crate) fn codes_of(&mut self, columns: &[ArrayRef], rows: usize, len: &mut usize) -> Vec<u32> {
        let array = &columns[self.slot];
        if let Some(coded) = array.as_dictionary_opt::<Int32Type>() {
            return self.codes_of_dictionary(coded, len);
        }
        let nulls = array.nulls();
        let is_null = |row: usize| nulls.is_some_and(|nulls| nulls.is_null(row));
        match Class::of(array.data_type()) {
            Class::Text if nulls.is_none() && *array.data_type() == DataType::Utf8View => {
                self.codes_of_views(array.as_string_view(), len)
            }
            Class::Text => {
                let texts = Texts::of(array);
                let value = |row| if is_null(row) { KeyRef::Null } else { KeyRef::Text(texts.get(row)) };
                (0..rows).map(|row| self.code(value(row), len)).collect()
            }
            Class::Boolean => {
                let values = array.as_boolean();
                let value = |row| if is_null(row) { KeyRef::Null } else { KeyRef::Boolean(values.value(row)) };
                (0..rows).map(|row| self.code(value(row), len)).collect()
            }
            _ => {
                let values = exact_digits(array);
                let value = |row: usize| if is_null(row) { KeyRef::Null } else { KeyRef::Exact(values[row]) };
                (0..rows).map(|row| self.code(value(row), len)).collect()
            }
        }
    }

    /// The values of a dictionary are looked up once, and only those that rows have.
    fn codes_of_dictionary(&mut self, array: &DictionaryArray<Int32Type>, len: &mut usize) -> Vec<u32> {
        let (texts, keys) = (array.values(), array.keys());
        let known = self.dictionary.take().filter(|(of, _)| Arc::ptr_eq(of, texts));
        let (_, mut known) = known.unwrap_or_else(|| (Arc::clone(texts), vec![None; texts.len()]));
        let nulls = array.logical_nulls();
        let mut null = None;
        let values = texts.as_string::<i32>();
        let code = |(row, key): (usize, &i32)| {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                return *null.get_or_insert_with(|| self.code(KeyRef::Null, len));
            }
            let at = usize::try_from(*key).expect("a key of the dictionary");
            *known[at].get_or_insert_with(|| self.code(KeyRef::Text(values.value(at)), len))
        };
        let codes = keys.values().iter().enumerate().map(code).collect();
        self.dictionary = Some((Arc::clone(texts), known));
        codes
    }

    /// Equal views are equal texts, and most rows have one of a few: what a view's code is, is kept where its hash says.
    fn codes_of_views(&mut self, array: &StringViewArray, len: &mut usize) -> Vec<u32> {
        let mut seen = [(0_u128, None::<u32>); VIEWS];
        let code = |(row, view): (usize, &u128)| {
            let folded = (view ^ (view >> 64)) as u64;
            let (known, code) = &mut seen[(folded.wrapping_mul(HASH) >> 32) as usize % VIEWS];
            if let (true, Some(code)) = (known == view, *code) {
                return code;
            }
            let found = self.code(KeyRef::Text(array.value(row)), len);
            (*known, *code) = (*view, Some(found));
            found
        };
        array.views().iter().enumerate().map(code).collect()
    }

    /// The code of a value; `len` counts the bytes that a new one takes.
    fn code(&mut self, value: KeyRef<'_>, len: &mut usize) -> u32 {
        if self.values.len() <= FEW
            && let Some(at) = self.values.iter().position(|known| known.as_ref() == value)
        {
            return at as u32;
        }
        let Self { values, codes, hasher, .. } = self;
        let hash = |code: &u32| hasher.hash_one(values[*code as usize].as_ref());
        let is_it = |code: &u32| values[*code as usize].as_ref() == value;
        match codes.entry(hasher.hash_one(value), is_it, hash) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(vacant) => {
                let code = values.len() as u32;
                vacant.insert(code);
                values.push(value.kept());
                *len += VALUE_LEN + if let KeyRef::Text(text) = value { text.len() } else { 0 };
                code
            }
        }
    }
}

fn key_array<'a>(data_type: &DataType, values: impl Iterator<Item = &'a KeyValue>) -> ArrayRef {
    match Class::of(data_type) {
        Class::Text => Arc::new(StringArray::from_iter(values.map(|value| match value {
            KeyValue::Text(text) => Some(text.as_ref()),
            _ => None,
        }))),
        Class::Boolean => Arc::new(BooleanArray::from_iter(values.map(|value| match value {
            KeyValue::Boolean(value) => Some(*value),
            _ => None,
        }))),
        _ => exact_array(
            data_type,
            values.map(|value| match value {
                KeyValue::Exact(value) => Some(*value),
                _ => None,
            }),
        ),
    }
}
