//! By meaning: vectors of the messages, compared by their angle. Kept in a file that can be made anew at any time.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::lexical::best;
use super::{Question, Retrieval};
use crate::limits::EMBEDDING_NUMBERS_MAX;

/// Bytes of a place and of the numbers of a vector, before it.
const HEAD_BYTES: usize = 8 + 4;
/// Products that are summed side by side, which a processor does at once.
const LANES: usize = 8;

/// Vectors of one session's messages, all of one length.
#[derive(Debug, Default)]
pub(in super::super) struct Vectors {
    numbers: usize,
    /// All vectors, one after another, each of length 1.
    rows: Vec<f32>,
    /// Place of the message of each row.
    places: Vec<usize>,
    /// By place of a message.
    known: Vec<bool>,
    file: PathBuf,
}

/// Why a vector is not taken.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum BadVector {
    /// It is empty or too long, or one of its numbers is none.
    #[error("the vector is none")]
    Malformed,
    /// It has not as many numbers as the others.
    #[error("the vector has {0} numbers, the others {1}")]
    Length(usize, usize),
    /// It cannot be kept; it is known until the program ends.
    #[error("the vector cannot be stored")]
    Store(#[source] io::Error),
}

impl Vectors {
    /// What a file has of a session of so many messages. A file that is damaged, or of another session, is as good as none
    /// from there on.
    pub(in super::super) fn open(file: PathBuf, messages: usize) -> Self {
        let mut vectors = Self { file, ..Self::default() };
        let content = fs::read(&vectors.file).unwrap_or_default();
        let mut rest = content.as_slice();
        while let Some((place, vector, others)) = record(rest) {
            if place >= messages || vectors.has(place) || vectors.learn(place, vector).is_err() {
                break;
            }
            rest = others;
        }
        if !rest.is_empty() {
            tracing::warn!(bytes = rest.len(), "the end of a file of vectors is of no use, and is cut off");
            if let Err(error) = cut(&vectors.file, content.len() - rest.len()) {
                tracing::warn!(%error, "the file of vectors cannot be cut");
            }
        }
        vectors
    }

    /// Whether there are vectors of this one's kind.
    pub(in super::super) fn is_comparable(&self, vector: &[f32]) -> bool {
        !self.places.is_empty() && vector.len() == self.numbers
    }

    /// Whether the message has a vector.
    pub(in super::super) fn has(&self, place: usize) -> bool {
        self.known.get(place).copied().unwrap_or_default()
    }

    /// Takes vectors of messages, and keeps them.
    pub(in super::super) fn add(&mut self, new: impl IntoIterator<Item = (usize, Vec<f32>)>) -> Result<(), BadVector> {
        let mut bytes = Vec::new();
        for (place, vector) in new {
            for part in [&(place as u64).to_le_bytes()[..], &u32::try_from(vector.len()).unwrap_or(0).to_le_bytes()] {
                bytes.extend_from_slice(part);
            }
            vector.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
            self.learn(place, vector)?;
        }
        let file = File::options().create(true).append(true).open(&self.file);
        file.and_then(|mut file| file.write_all(&bytes)).map_err(BadVector::Store)
    }

    /// Forgets all of them: whoever makes them makes others now.
    pub(in super::super) fn forget(&mut self) {
        if let Err(error) = cut(&self.file, 0) {
            tracing::warn!(%error, "the file of vectors cannot be emptied");
        }
        *self = Self { file: std::mem::take(&mut self.file), ..Self::default() };
    }

    fn learn(&mut self, place: usize, vector: Vec<f32>) -> Result<(), BadVector> {
        if self.places.is_empty() {
            self.numbers = vector.len();
        }
        if vector.len() != self.numbers {
            return Err(BadVector::Length(vector.len(), self.numbers));
        }
        self.rows.extend(of_length_one(vector).ok_or(BadVector::Malformed)?);
        self.places.push(place);
        self.known.resize(self.known.len().max(place + 1), false);
        self.known[place] = true;
        Ok(())
    }
}

impl Retrieval for Vectors {
    fn find(&self, question: Question<'_>, wanted: &dyn Fn(usize) -> bool, most: usize) -> Vec<usize> {
        let Some(vector) = question.vector.filter(|vector| self.is_comparable(vector)) else {
            return Vec::new();
        };
        let rows = self.places.iter().zip(self.rows.chunks_exact(self.numbers));
        let wanted = rows.filter(|(place, _)| wanted(**place));
        let scored = wanted.map(|(place, row)| (*place, product(row, vector))).filter(|(_, score)| *score > 0.0);
        best(scored.collect(), most)
    }
}

/// The next record of a file, and what follows it.
fn record(bytes: &[u8]) -> Option<(usize, Vec<f32>, &[u8])> {
    let (place, rest) = bytes.split_first_chunk::<8>()?;
    let (numbers, rest) = rest.split_first_chunk::<4>()?;
    let numbers =
        usize::try_from(u32::from_le_bytes(*numbers)).ok().filter(|numbers| *numbers <= EMBEDDING_NUMBERS_MAX)?;
    let (vector, rest) = rest.split_at_checked(numbers * 4)?;
    debug_assert_eq!(bytes.len() - rest.len(), HEAD_BYTES + vector.len());
    let numbers = vector.as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number));
    Some((usize::try_from(u64::from_le_bytes(*place)).ok()?, numbers.collect(), rest))
}

fn cut(file: &Path, bytes: usize) -> io::Result<()> {
    File::options().write(true).open(file)?.set_len(bytes as u64)
}

fn of_length_one(mut vector: Vec<f32>) -> Option<Vec<f32>> {
    let length = product(&vector, &vector).sqrt();
    let is_one = length.is_finite() && length > 0.0 && vector.len() <= EMBEDDING_NUMBERS_MAX;
    vector.iter_mut().for_each(|number| *number /= length);
    is_one.then_some(vector)
}

fn product(one: &[f32], other: &[f32]) -> f32 {
    let ((ones, ones_left), (others, others_left)) = (one.as_chunks::<LANES>(), other.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (one, other) in ones.iter().zip(others) {
        for ((sum, one), other) in sums.iter_mut().zip(one).zip(other) {
            *sum += one * other;
        }
    }
    let left: f32 = ones_left.iter().zip(others_left).map(|(one, other)| one * other).sum();
    sums.iter().sum::<f32>() + left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(directory: &Path, messages: usize) -> Vectors {
        Vectors::open(directory.join("vectors"), messages)
    }

    fn find(vectors: &Vectors, vector: &[f32]) -> Vec<usize> {
        vectors.find(Question { text: "", vector: Some(vector) }, &|_| true, 2)
    }

    #[test]
    fn the_nearest_by_angle_are_found_whatever_their_length() {
        let directory = tempfile::tempdir().unwrap();
        let mut vectors = opened(directory.path(), 4);
        vectors.add([(0, vec![1.0, 0.0]), (1, vec![0.0, 9.0]), (2, vec![5.0, 5.0]), (3, vec![-1.0, -1.0])]).unwrap();
        assert_eq!(find(&vectors, &[0.0, 1.0]), [1, 2]);
        assert_eq!(find(&vectors, &[3.0, 0.1]), [0, 2]);
        assert_eq!(find(&vectors, &[-1.0, 0.0]), [3]);
        assert!(find(&vectors, &[1.0, 0.0, 0.0]).is_empty());
    }

    #[test]
    fn vectors_are_there_when_the_session_is_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        opened(directory.path(), 2).add([(0, vec![1.0, 0.0]), (1, vec![0.0, 1.0])]).unwrap();
        assert_eq!(find(&opened(directory.path(), 2), &[1.0, 0.5]), [0, 1]);
        // One that a crash left behind without its message.
        assert!(!opened(directory.path(), 1).has(1));
    }

    #[test]
    fn a_torn_file_loses_its_last_vector_only_and_grows_again() {
        let directory = tempfile::tempdir().unwrap();
        opened(directory.path(), 2).add([(0, vec![1.0, 0.0]), (1, vec![0.0, 1.0])]).unwrap();
        let file = directory.path().join("vectors");
        cut(&file, HEAD_BYTES + 8 + HEAD_BYTES + 7).unwrap();
        let mut vectors = opened(directory.path(), 2);
        assert!(vectors.has(0) && !vectors.has(1));
        vectors.add([(1, vec![0.0, 2.0])]).unwrap();
        assert!(opened(directory.path(), 2).has(1));
    }

    #[test]
    fn what_is_no_vector_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut vectors = opened(directory.path(), 9);
        assert!(matches!(vectors.add([(0, vec![])]), Err(BadVector::Malformed)));
        assert!(matches!(vectors.add([(0, vec![0.0, 0.0])]), Err(BadVector::Malformed)));
        assert!(matches!(vectors.add([(0, vec![f32::NAN])]), Err(BadVector::Malformed)));
        assert!(matches!(vectors.add([(0, vec![1.0; EMBEDDING_NUMBERS_MAX + 1])]), Err(BadVector::Malformed)));
        vectors.add([(0, vec![1.0; EMBEDDING_NUMBERS_MAX])]).unwrap();
        assert!(matches!(vectors.add([(1, vec![1.0])]), Err(BadVector::Length(1, EMBEDDING_NUMBERS_MAX))));
    }
}
