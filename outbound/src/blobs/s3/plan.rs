//! How long the parts of an upload are.
//!
//! S3 takes ten thousand parts. Where the whole is announced they are all of one size, which some services demand;
//! where it is not, they grow, so that short streams flow in short parts and long ones do not run out of them.

use crate::limits::{S3_PART_MIB_MAX, S3_PART_MIB_MIN, S3_PARTS_MAX};

const MIB: u64 = 1024 * 1024;
/// Parts before they grow, and before they grow for good.
const STEP: usize = S3_PARTS_MAX / 10;

/// MiB of part number `index` (from 0), of a whole of `announced_bytes`; none where the upload cannot hold it.
pub(super) fn part_mib(index: usize, announced_bytes: Option<u64>) -> Option<u32> {
    if index >= S3_PARTS_MAX {
        return None;
    }
    let Some(announced_bytes) = announced_bytes else {
        return Some(match index / STEP {
            0 => S3_PART_MIB_MIN,
            1 => 2 * S3_PART_MIB_MIN,
            _ => S3_PART_MIB_MAX,
        });
    };
    let fitting = u32::try_from(announced_bytes.div_ceil(S3_PARTS_MAX as u64 * MIB)).ok()?;
    (fitting <= S3_PART_MIB_MAX).then_some(fitting.max(S3_PART_MIB_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unannounced_whole_may_have_226_gib() {
        let all: u64 = (0..).map_while(|index| part_mib(index, None)).map(u64::from).sum();
        assert_eq!(all / 1024, 226);
        assert_eq!(part_mib(S3_PARTS_MAX, None), None);
    }

    #[test]
    fn parts_of_an_announced_whole_are_equal_and_suffice() {
        let largest = S3_PARTS_MAX as u64 * u64::from(S3_PART_MIB_MAX) * MIB;
        assert_eq!(largest / MIB / 1024, 253);
        for announced in [0, 1, MIB, 100 * 1024 * MIB, 200 * 1024 * MIB, largest] {
            let mib = part_mib(0, Some(announced)).unwrap();
            assert!(u64::from(mib) * MIB * S3_PARTS_MAX as u64 >= announced, "{announced} in parts of {mib} MiB");
            assert_eq!(part_mib(S3_PARTS_MAX - 1, Some(announced)), Some(mib));
        }
        assert_eq!(part_mib(0, Some(largest + 1)), None);
    }

    #[test]
    fn parts_never_shrink_and_stay_within_their_bounds() {
        let parts: Vec<u32> = (0..S3_PARTS_MAX).map_while(|index| part_mib(index, None)).collect();
        assert!(parts.is_sorted() && parts.len() == S3_PARTS_MAX);
        assert_eq!((parts.first(), parts.last()), (Some(&S3_PART_MIB_MIN), Some(&S3_PART_MIB_MAX)));
    }
}
