//! By words: Okapi BM25 over an index that grows with the session.
//!
//! A library would need the average length of a message beforehand, and goes through every word of every message that shares
//! one with the question; here a question costs as much as its own words occur.

use std::collections::{HashMap, HashSet};

use super::{Question, Retrieval};

/// How fast the weight of a word's repetition in one message levels off; the usual value.
const SATURATION: f32 = 1.2;
/// How much the weight of a word sinks in a long message; the usual value.
const LENGTH_NORMALISATION: f32 = 0.75;
/// Letters after which inflections of one word often differ: `deployment` and `deploying` are found by `deploy`.
const STEM_LETTERS: usize = 6;

/// An index of words.
#[derive(Debug, Default)]
pub(in super::super) struct Lexical {
    /// Places of the messages with a word, in order, and how often each has it.
    occurrences: HashMap<String, Vec<(usize, f32)>>,
    /// Words of each message.
    lengths: Vec<f32>,
    total_length: f32,
}

impl Lexical {
    /// Takes up the next message.
    pub(in super::super) fn add(&mut self, text: &str) {
        let place = self.lengths.len();
        let mut length = 0.0;
        let mut counts: HashMap<String, f32> = HashMap::new();
        for term in terms(text) {
            *counts.entry(term).or_default() += 1.0;
            length += 1.0;
        }
        for (term, count) in counts {
            self.occurrences.entry(term).or_default().push((place, count));
        }
        self.lengths.push(length);
        self.total_length += length;
    }

    #[allow(clippy::cast_precision_loss)]
    fn scores(&self, question: &str) -> Vec<f32> {
        let messages = self.lengths.len() as f32;
        let average = (self.total_length / messages).max(1.0);
        let mut scores = vec![0.0; self.lengths.len()];
        for term in terms(question).collect::<HashSet<_>>() {
            let Some(places) = self.occurrences.get(&term) else { continue };
            let having = places.len() as f32;
            let rarity = (1.0 + (messages - having + 0.5) / (having + 0.5)).ln();
            for (place, count) in places {
                let length = 1.0 - LENGTH_NORMALISATION + LENGTH_NORMALISATION * self.lengths[*place] / average;
                scores[*place] += rarity * count * (SATURATION + 1.0) / (count + SATURATION * length);
            }
        }
        scores
    }
}

impl Retrieval for Lexical {
    fn find(&self, question: Question<'_>, wanted: &dyn Fn(usize) -> bool, most: usize) -> Vec<usize> {
        let scores = self.scores(question.text).into_iter().enumerate();
        best(scores.filter(|(place, score)| *score > 0.0 && wanted(*place)).collect(), most)
    }
}

/// Places of the highest scores; of equal ones the later message is the better.
pub(super) fn best(mut scored: Vec<(usize, f32)>, most: usize) -> Vec<usize> {
    let order = |one: &(usize, f32), other: &(usize, f32)| other.1.total_cmp(&one.1).then(other.0.cmp(&one.0));
    if scored.len() > most {
        scored.select_nth_unstable_by(most, order);
        scored.truncate(most);
    }
    scored.sort_unstable_by(order);
    scored.into_iter().map(|(place, _)| place).collect()
}

/// Words as they are searched: in small letters, long ones also by their beginning, and the characters of scripts without
/// spaces one by one.
fn terms(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.flat_map(|word| {
        if word.chars().any(is_written_without_spaces) {
            return word.chars().map(String::from).collect();
        }
        let word = word.to_lowercase();
        match word.char_indices().nth(STEM_LETTERS) {
            Some((end, _)) => vec![word[..end].to_string(), word],
            None => vec![word],
        }
    })
}

/// Chinese, Japanese, Thai, Lao, Khmer and Burmese.
fn is_written_without_spaces(letter: char) -> bool {
    matches!(letter, '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: [&str; 5] = [
        "The deployment runs in the region Frankfurt.",
        "The cat sleeps on the warm keyboard.",
        "Deployments need the key of the vault; the vault is sealed.",
        "東京の天気は晴れです",
        "The the the the the.",
    ];

    fn check(question: &str, found: &[usize]) {
        let mut index = Lexical::default();
        MESSAGES.iter().for_each(|message| index.add(message));
        assert_eq!(index.find(Question { text: question, vector: None }, &|_| true, 3), found, "{question}");
    }

    #[test]
    fn the_rarest_words_of_a_question_count_most() {
        check("where is the vault?", &[2, 4, 1]);
        check("FRANKFURT", &[0]);
        check("keyboard", &[1]);
    }

    #[test]
    fn a_word_is_found_in_other_inflections() {
        check("deploying", &[0, 2]);
        check("deploy", &[0, 2]);
    }

    #[test]
    fn scripts_without_spaces_are_searched_by_character() {
        check("天気", &[3]);
    }

    #[test]
    fn what_shares_no_word_is_not_found() {
        check("zebra", &[]);
        check("", &[]);
        check("?!", &[]);
    }

    #[test]
    fn what_is_not_wanted_is_not_found() {
        let mut index = Lexical::default();
        MESSAGES.iter().for_each(|message| index.add(message));
        assert!(index.find(Question { text: "vault", vector: None }, &|place| place != 2, 3).is_empty());
    }
}
