//! The columns of several files together.

use crate::lines::names_of_two;
use crate::outcome::Outcome;
use crate::result::exact_array;
use crate::table::data_type;
use arrow_array::{ArrayRef, BooleanArray, Float64Array, StringArray, new_null_array};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use diskside_scan::{COLUMNS_MAX, ColumnType, Failure, FailureKind, Literal, OneFile, PLAN_LEN_MAX, Plan, Several};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// Columns by name: those of files, in the order in which they are met, then those that paths say.
pub(crate) struct Union {
    /// Each with the file that it was met in first.
    of_files: Vec<(Field, usize)>,
    /// Their places: files may have a hundred thousand columns.
    places: HashMap<String, usize>,
    of_paths: Vec<Field>,
    /// The files are parts of one, whose columns are as they are in it.
    are_parts: bool,
    /// The files are those of a table, whose metadata holds where a file says otherwise.
    is_of_table: bool,
    /// Columns of a table that are NULL where no file has them.
    of_table: Vec<Field>,
    /// The columns of a table by their names in small letters; none of two that differ in their letters alone.
    in_small_letters: HashMap<String, Option<usize>>,
    /// The columns that a plan names; `None`: it is of all. Others may differ as they like.
    named: Option<HashSet<String>>,
    /// Types that the plan gives columns of text files.
    types: Vec<(String, ColumnType)>,
    /// Of each file the columns that it has; `None`: it was not asked yet.
    had: Vec<Option<Rc<Had>>>,
    /// Most files have the same as the one before.
    last: Rc<Had>,
}

/// Columns of a file, by their places: in its order, and to find them.
#[derive(Default)]
struct Had {
    in_order: Vec<usize>,
    all: HashSet<usize>,
}

impl Union {
    /// Of several files, with the columns that paths or a table say.
    pub(crate) fn new(several: &Several, plan: &Plan) -> Self {
        let field = |(name, of): &(String, ColumnType)| Field::new(name, data_type(*of), true);
        let of_paths = several.columns.iter().map(field).collect();
        let of_table: Vec<Field> = several.of_table.iter().flatten().map(field).collect();
        let mut in_small_letters = HashMap::new();
        for (at, field) in of_table.iter().enumerate() {
            let known = in_small_letters.entry(field.name().to_lowercase());
            known.and_modify(|known| *known = None).or_insert(Some(at));
        }
        let is_of_table = several.of_table.is_some();
        let (of_files, types, had) = (Vec::new(), plan.types.clone(), vec![None; several.files as usize]);
        Self {
            of_files,
            places: HashMap::new(),
            of_paths,
            are_parts: several.are_parts,
            is_of_table,
            of_table,
            in_small_letters,
            named: named(plan),
            types,
            had,
            last: Rc::default(),
        }
    }

    /// Adds the columns of a table that no file has, once all files were asked for those that the plan names.
    pub(crate) fn complete(&mut self) {
        for field in self.of_table.clone() {
            let is_named = self.named.as_ref().is_none_or(|named| named.contains(field.name()));
            if is_named && !self.has(field.name()) {
                self.push(field, 0);
            }
        }
    }

    /// Adds the columns of a file.
    pub(crate) fn add(
        &mut self,
        file: usize,
        schema: &Schema,
        files: &[OneFile],
        outcome: Outcome<'_>,
    ) -> Result<(), Failure> {
        let wrong = |what: String| Err(outcome.failure(FailureKind::Plan, what));
        if self.is_of_all() && !may_name_all(schema) {
            return wrong(format!(
                "{} has {} columns. The scan of one of several files names its columns: at most {COLUMNS_MAX}, with {} KiB of names. \
                 Name those that are wanted (--columns), or scan the file alone",
                files[file].name,
                schema.fields().len(),
                PLAN_LEN_MAX >> 10,
            ));
        }
        let mut had = Had::default();
        for field in schema.fields() {
            let name = field.name();
            let is_named = self.named.as_ref().is_none_or(|named| named.contains(name));
            if (is_named || self.is_of_table) && self.of_paths.iter().any(|of_path| of_path.name() == name) {
                if self.is_of_table {
                    continue;
                }
                return wrong(format!(
                    "column `{name}` is in {} and in its path; leave columns of paths out (--no-partitions) to have the file's",
                    files[file].name
                ));
            }
            if let Some(what) = self.differs_from_table(field) {
                return wrong(format!("{what} in {}", files[file].name));
            }
            let wanted = self.types.iter().find(|(wanted, _)| wanted == name).map(|(_, of)| data_type(*of));
            let found = wanted.unwrap_or_else(|| field.data_type().clone());
            // Looked at in the order of the one before, columns of equal files are found at once.
            let expected = self.last.in_order.get(had.in_order.len()).copied();
            let expected = expected.filter(|at| self.of_files[*at].0.name() == name);
            let known = expected.or_else(|| self.places.get(name).copied());
            let at = known.unwrap_or_else(|| {
                let of_all = match self.are_parts {
                    true => field.as_ref().clone().with_data_type(found.clone()),
                    false => Field::new(name, found.clone(), true),
                };
                self.push(of_all, file)
            });
            let (known, first) = &self.of_files[at];
            if is_named && had.all.contains(&at) && expected.is_none() {
                return wrong(format!("several columns of {} are called `{name}`", files[file].name));
            }
            if is_named && *known.data_type() != found {
                let [known, found] = names_of_two(known.data_type(), &found);
                return wrong(format!(
                    "column `{name}` is of type {} in {}, and of type {} in {}: it has to be the same in all files; of CSV and JSON \
                     files --types '{name} text' says what it is",
                    known, files[*first].name, found, files[file].name,
                ));
            }
            had.in_order.push(at);
            had.all.insert(at);
        }
        if self.last.in_order != had.in_order {
            self.last = had.into();
        }
        self.had[file] = Some(Rc::clone(&self.last));
        Ok(())
    }

    fn push(&mut self, field: Field, file: usize) -> usize {
        let at = self.of_files.len();
        self.places.insert(field.name().clone(), at);
        self.of_files.push((field, file));
        at
    }

    /// Whether a column of a file of a table is not what others that read the table find.
    fn differs_from_table(&self, field: &Field) -> Option<String> {
        let name = field.name();
        let of_table = &self.of_table[(*self.in_small_letters.get(&name.to_lowercase())?)?];
        let known = of_table.name();
        if self.named.as_ref().is_some_and(|named| !named.contains(known)) {
            return None;
        }
        // By its name it would be NULL in this file.
        if known != name {
            return Some(format!("column `{known}` of the table is called `{name}`"));
        }
        let is_time = matches!(of_table.data_type(), DataType::Timestamp(..));
        let may_wrap = is_time && matches!(field.data_type(), DataType::Timestamp(TimeUnit::Nanosecond, _));
        may_wrap.then(|| {
            format!("times of column `{name}` are kept in nanoseconds, which do not reach as far as the table's,")
        })
    }

    pub(crate) fn knows(&self, file: usize) -> bool {
        self.had[file].is_some()
    }

    /// Whether the plan is of all columns.
    pub(crate) fn is_of_all(&self) -> bool {
        self.named.is_none()
    }

    /// Whether all columns that the plan names, or gives a type, were met.
    pub(crate) fn has_named(&self) -> bool {
        let types = self.types.iter().map(|(name, _)| name);
        self.named.iter().flatten().chain(types).all(|name| self.has(name))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.places.contains_key(name) || self.of_paths.iter().any(|field| field.name() == name)
    }

    pub(crate) fn schema(&self) -> Schema {
        let of_files = self.of_files.iter().map(|(field, _)| field);
        Schema::new(of_files.chain(&self.of_paths).cloned().collect::<Vec<_>>())
    }

    /// The value that a column has in all rows of a file; `None`: it is one of the file's.
    pub(crate) fn value(&self, file: usize, of: &OneFile, name: &str) -> Option<Literal> {
        if let Some(at) = self.of_paths.iter().position(|field| field.name() == name) {
            return Some(of.values.get(at).cloned().unwrap_or(Literal::Null));
        }
        let at = self.places.get(name)?;
        let is_had = self.had[file].as_ref().is_some_and(|had| had.all.contains(at));
        (!is_had).then_some(Literal::Null)
    }
}

/// Whether the plan for a file has room for the names of all columns.
fn may_name_all(schema: &Schema) -> bool {
    let names_len: usize = schema.fields().iter().map(|field| size_of::<u32>() + field.name().len()).sum();
    schema.fields().len() <= COLUMNS_MAX && names_len <= PLAN_LEN_MAX
}

fn named(plan: &Plan) -> Option<HashSet<String>> {
    if plan.columns.is_empty() && !plan.aggregates() && !plan.gives_result() {
        return None;
    }
    let mut named: HashSet<String> = plan.columns.iter().chain(&plan.by).cloned().collect();
    let inputs = plan.aggregates.iter().filter_map(|aggregate| aggregate.input.as_ref());
    inputs.chain(&plan.filter).for_each(|one| one.columns(&mut |name| named.extend([name.to_owned()])));
    Some(named)
}

/// So many rows with one value.
pub(crate) fn constant(data_type: &DataType, value: &Literal, rows: usize) -> ArrayRef {
    let repeat = |digits: i128| exact_array(data_type, std::iter::repeat_n(Some(digits), rows));
    match value {
        Literal::Null => new_null_array(data_type, rows),
        Literal::Boolean(value) => Arc::new(BooleanArray::from(vec![*value; rows])),
        Literal::Float(value) => Arc::new(Float64Array::from(vec![*value; rows])),
        Literal::Text(text) => Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, rows))),
        Literal::Number { digits, .. } => repeat(*digits),
        Literal::Date(days) => repeat((*days).into()),
        Literal::Timestamp(micros) => repeat((*micros).into()),
    }
}
