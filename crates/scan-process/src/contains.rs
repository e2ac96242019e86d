//! Which texts of a column contain another: searched for in all of its bytes at once.

use arrow_array::{Array as _, StringViewArray};
use arrow_buffer::BooleanBuffer;
use memchr::memmem::Finder;

/// Texts of at most so many bytes are in their view.
const INLINE_LEN: u32 = 12;

/// The known part of a buffer: from `from` on, the wanted text is first found at `hit`.
#[derive(Clone, Copy)]
struct Known {
    from: usize,
    hit: usize,
}

/// Searches from text to text, and across all that have nothing to the next that has: most texts of a column lie one
/// after another. Bytes before the point that the search has come to are looked at by themselves, so no byte is
/// searched twice that way.
pub(crate) fn contains(array: &StringViewArray, wanted: &Finder<'_>) -> BooleanBuffer {
    let mut known: Vec<Option<Known>> = vec![None; array.data_buffers().len()];
    let wanted_len = wanted.needle().len();
    BooleanBuffer::collect_bool(array.len(), |row| {
        let view = array.views()[row];
        let len = view as u32;
        if len <= INLINE_LEN {
            return wanted.find(array.value(row).as_bytes()).is_some();
        }
        // A view: length, the first four bytes, the buffer, and the place in it.
        let (buffer, start, len) = ((view >> 64) as u32 as usize, (view >> 96) as usize, len as usize);
        let bytes = array.data_buffers()[buffer].as_slice();
        let known = &mut known[buffer];
        if known.is_some_and(|known| start < known.from) {
            return wanted.find(&bytes[start..start + len]).is_some();
        }
        let hit = match known {
            Some(known) if start <= known.hit => known.hit,
            _ => {
                let hit = wanted.find(&bytes[start..]).map_or(usize::MAX, |found| start + found);
                *known = Some(Known { from: start, hit });
                hit
            }
        };
        hit != usize::MAX && hit + wanted_len <= start + len
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::builder::StringViewBuilder;

    #[test]
    fn each_text_is_found_as_if_it_were_alone() {
        let words = [
            "the quick brown fox",
            "fo",
            "a longer text without it",
            "x and then fox",
            "",
            "fox",
            "ends with the fo",
            "x begins, but no more",
        ];
        let mut built = StringViewBuilder::new();
        words.iter().for_each(|word| built.append_value(word));
        let plain = built.finish();
        // As dictionaries give them: backwards, and again and again.
        let picked: Vec<usize> = (0..200).map(|row| (row * 5 + row / 7) % words.len()).collect();
        let views: Vec<u128> = picked.iter().map(|row| plain.views()[*row]).collect();
        let again = StringViewArray::new(views.into(), plain.data_buffers().to_vec(), None);
        for wanted in ["fox", "x", "", "quick brown", "fox fox", "text without it", "fo"] {
            let finder = Finder::new(wanted);
            let found: Vec<bool> = contains(&plain, &finder).iter().collect();
            assert_eq!(found, words.map(|word| word.contains(wanted)), "{wanted}");
            let found: Vec<bool> = contains(&again, &finder).iter().collect();
            let alone: Vec<bool> = picked.iter().map(|row| words[*row].contains(wanted)).collect();
            assert_eq!(found, alone, "{wanted}");
        }
    }
}
