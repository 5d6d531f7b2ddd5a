//! How much is kept, and told, of what items wrote: as long as each text may be, and it is said where there was more.

use sandbox_protocol::batch::{CUT, ItemReport};

/// An item none of whose texts is longer.
pub(super) fn cut(mut item: ItemReport, text_bytes_max: usize) -> ItemReport {
    if let Some(exec) = &mut item.exec {
        exec.truncated |= exec.stdout.0.len().max(exec.stderr.0.len()) > text_bytes_max;
        exec.stdout.0.truncate(text_bytes_max);
        exec.stderr.0.truncate(text_bytes_max);
    }
    if let Some(task) = &mut item.task {
        cut_words(&mut task.result, text_bytes_max);
        cut_words(&mut task.error, text_bytes_max);
    }
    if let Some(failure) = &mut item.failure {
        cut_words(&mut failure.message, text_bytes_max);
    }
    item
}

/// Words that are not longer, and end with [`CUT`] where they were.
pub(super) fn cut_words(words: &mut String, bytes_max: usize) {
    if words.len() > bytes_max {
        words.truncate(words.floor_char_boundary(bytes_max.saturating_sub(CUT.len())));
        words.push_str(CUT);
    }
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::batch::{ItemExec, ItemState, ItemTask};
    use sandbox_protocol::exec::ByteText;
    use sandbox_protocol::{Failure, FailureCode};

    use super::super::bare;
    use super::*;

    #[test]
    fn what_is_cut_says_so_and_what_fits_is_as_it_was() {
        let exec = |stdout: &str, stderr: &str| ItemExec {
            stdout: ByteText(stdout.into()),
            stderr: ByteText(stderr.into()),
            ..ItemExec::default()
        };
        let item = |exec| ItemReport { exec: Some(exec), ..bare(0, None, ItemState::Succeeded) };
        for (found, kept, truncated) in [
            (exec("0123456789", "0123456789"), exec("0123456789", "0123456789"), false),
            (exec("0123456789a", "b"), exec("0123456789", "b"), true),
            (exec("a", "0123456789b"), exec("a", "0123456789"), true),
        ] {
            assert_eq!(cut(item(found), 10), item(ItemExec { truncated, ..kept }));
        }
        let task = ItemTask { result: "0123456789".into(), error: "üüüüüü".into(), ..ItemTask::default() };
        let failure = Failure::new(FailureCode::BadRequest, "0123456789a");
        let item = ItemReport { task: Some(task), failure: Some(failure), ..bare(0, None, ItemState::Failed) };
        let found = cut(item, 10);
        let task = found.task.unwrap();
        assert_eq!((task.result.as_str(), task.error.as_str()), ("0123456789", "üü […]"));
        assert_eq!(found.failure.unwrap().message, "0123 […]");
    }
}
