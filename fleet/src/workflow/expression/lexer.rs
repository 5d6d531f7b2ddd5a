//! Words and signs of an expression, one after the other.

use serde_json::Number;

use super::BadExpression;

/// A word or sign.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Name(String),
    Number(Number),
    Text(String),
    /// One of [`SIGNS`].
    Sign(&'static str),
    End,
}

/// Longer ones first: the first that fits is meant.
const SIGNS: [&str; 16] = ["}}", "==", "!=", "<=", ">=", "&&", "||", "<", ">", "!", "(", ")", "[", "]", ",", "."];

/// Reads tokens from a text.
#[derive(Debug, Clone)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    /// Byte of the next letter.
    at: usize,
}

impl<'a> Lexer<'a> {
    /// Begins at this byte.
    pub(super) fn new(text: &'a str, at: usize) -> Self {
        Self { text, at }
    }

    /// The byte behind the last token.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// A complaint about the letter at this byte.
    pub(super) fn bad(&self, at: usize, message: impl Into<String>) -> BadExpression {
        BadExpression::new(self.text, at, message)
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// The next token, and the byte where it begins.
    pub(super) fn next(&mut self) -> Result<(Token, usize), BadExpression> {
        self.at = self.text.len() - self.rest().trim_start().len();
        let start = self.at;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok((Token::End, start)) };
        if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            self.at += sign.len();
            return Ok((Token::Sign(sign), start));
        }
        let token = match first {
            '\'' => Token::Text(self.quoted()?),
            '-' | '0'..='9' => Token::Number(self.number()?),
            'a'..='z' | 'A'..='Z' | '_' => Token::Name(self.taken(is_of_name).to_owned()),
            '"' => return Err(self.bad(start, "texts stand between single quotes: 'text'")),
            other => return Err(self.bad(start, format!("{other:?} means nothing here"))),
        };
        Ok((token, start))
    }

    fn taken(&mut self, is_part: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.bytes().take_while(|byte| is_part(*byte)).count();
        self.at += length;
        &rest[..length]
    }

    fn number(&mut self) -> Result<Number, BadExpression> {
        let start = self.at;
        let digits = self.taken(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.'));
        serde_json::from_str(digits).map_err(|_| self.bad(start, format!("{digits} is no number")))
    }

    /// The text between quotes; two quotes within it are one.
    fn quoted(&mut self) -> Result<String, BadExpression> {
        let start = self.at;
        let mut text = String::new();
        loop {
            let behind = &self.text[self.at + 1..];
            let Some(length) = behind.find('\'') else { return Err(self.bad(start, "the quote is not closed")) };
            text.push_str(&behind[..length]);
            self.at += length + 2;
            if !self.rest().starts_with('\'') {
                return Ok(text);
            }
            text.push('\'');
        }
    }
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}
