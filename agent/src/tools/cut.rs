//! Long results: their middle is left out.

/// The text, or its beginning and end with a mark between them that tells what is missing. The mark comes on top of
/// `bytes_max`.
pub(super) fn cut(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    let head = text.floor_char_boundary(bytes_max / 2);
    let tail = text.ceil_char_boundary(text.len() - (bytes_max - bytes_max / 2));
    format!("{}\n[... {} bytes left out ...]\n{}", &text[..head], tail - head, &text[tail..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_at_the_bound_is_whole_and_one_beyond_it_is_cut_in_its_middle() {
        assert_eq!(cut("abcdef".into(), 6), "abcdef");
        assert_eq!(cut("abcdefg".into(), 6), "abc\n[... 1 bytes left out ...]\nefg");
        assert_eq!(cut("ääää".into(), 6), "ä\n[... 4 bytes left out ...]\nä");
    }

    proptest! {
        #[test]
        fn what_is_kept_and_left_out_is_all(text in "\\PC*", bytes_max in 0..64_usize) {
            let told = cut(text.clone(), bytes_max);
            if text.len() <= bytes_max {
                prop_assert_eq!(told, text);
            } else {
                let (head, rest) = told.split_once("\n[... ").unwrap();
                let (left_out, tail) = rest.split_once(" bytes left out ...]\n").unwrap();
                prop_assert!(text.starts_with(head) && text.ends_with(tail) && head.len() + tail.len() <= bytes_max);
                prop_assert_eq!(head.len() + tail.len() + left_out.parse::<usize>().unwrap(), text.len());
            }
        }
    }
}
