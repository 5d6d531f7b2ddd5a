//! From tokens to an expression. It goes down once for every parenthesis, `!` and call, and no deeper than may be.

use sandbox_protocol::limits::WORKFLOW_EXPRESSION_BYTES_MAX;

use super::lexer::{Lexer, Token};
use super::{BadExpression, Comparison, Node, Part, Path};
use crate::limits::EXPRESSION_DEPTH_MAX;
use crate::workflow::value::Value;

const CLOSE: Token = Token::Sign("}}");

pub(super) fn whole(text: &str) -> Result<Node, BadExpression> {
    let mut parser = Parser::new(text, 0)?;
    let node = parser.any(0)?;
    parser.demand(&Token::End)?;
    parser.bounded(0, text.len())?;
    Ok(node)
}

pub(super) fn to_braces(text: &str, start: usize) -> Result<(Node, usize), BadExpression> {
    let mut parser = Parser::new(text, start)?;
    let node = parser.any(0)?;
    // Not taken: what follows the braces is no expression, and is not to be read as one.
    if parser.token != CLOSE {
        return Err(parser.unexpected("`}}`"));
    }
    parser.bounded(start, parser.start)?;
    Ok((node, parser.lexer.at()))
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next token.
    token: Token,
    /// Where it begins.
    start: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, at: usize) -> Result<Self, BadExpression> {
        let mut lexer = Lexer::new(text, at);
        let (token, start) = lexer.next()?;
        Ok(Self { lexer, token, start })
    }

    fn bounded(&self, start: usize, end: usize) -> Result<(), BadExpression> {
        if end - start <= WORKFLOW_EXPRESSION_BYTES_MAX {
            return Ok(());
        }
        Err(self.lexer.bad(start, format!("longer than {WORKFLOW_EXPRESSION_BYTES_MAX} bytes")))
    }

    fn unexpected(&self, expected: &str) -> BadExpression {
        let found = match &self.token {
            Token::Name(name) => format!("`{name}`"),
            Token::Number(number) => format!("`{number}`"),
            Token::Text(_) => "a text".to_owned(),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::End => "the end".to_owned(),
        };
        self.lexer.bad(self.start, format!("{expected} is expected, not {found}"))
    }

    fn advance(&mut self) -> Result<Token, BadExpression> {
        let (token, start) = self.lexer.next()?;
        self.start = start;
        Ok(std::mem::replace(&mut self.token, token))
    }

    /// Takes the sign if it is the next.
    fn takes(&mut self, sign: &'static str) -> Result<bool, BadExpression> {
        let is_next = self.token == Token::Sign(sign);
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    fn demand(&mut self, token: &Token) -> Result<(), BadExpression> {
        if self.token != *token {
            return Err(self.unexpected(match token {
                Token::Sign(")") => "`)`",
                Token::Sign("]") => "`]`",
                Token::Sign(",") => "`,`",
                Token::Name(_) | Token::Number(_) | Token::Text(_) | Token::Sign(_) | Token::End => "the end",
            }));
        }
        // Behind the end there is the end.
        self.advance().map(drop)
    }

    fn any(&mut self, depth: usize) -> Result<Node, BadExpression> {
        let mut nodes = vec![self.all(depth)?];
        while self.takes("||")? {
            nodes.push(self.all(depth)?);
        }
        Ok(joined(nodes, Node::Any))
    }

    fn all(&mut self, depth: usize) -> Result<Node, BadExpression> {
        let mut nodes = vec![self.comparison(depth)?];
        while self.takes("&&")? {
            nodes.push(self.comparison(depth)?);
        }
        Ok(joined(nodes, Node::All))
    }

    fn comparison(&mut self, depth: usize) -> Result<Node, BadExpression> {
        let left = self.negation(depth)?;
        let comparison = match self.token {
            Token::Sign("==") => Comparison::Equal,
            Token::Sign("!=") => Comparison::Unequal,
            Token::Sign("<") => Comparison::Less,
            Token::Sign("<=") => Comparison::LessOrEqual,
            Token::Sign(">") => Comparison::Greater,
            Token::Sign(">=") => Comparison::GreaterOrEqual,
            Token::Name(_) | Token::Number(_) | Token::Text(_) | Token::Sign(_) | Token::End => return Ok(left),
        };
        self.advance()?;
        let right = self.negation(depth)?;
        Ok(Node::Compare(comparison, Box::new([left, right])))
    }

    fn negation(&mut self, depth: usize) -> Result<Node, BadExpression> {
        if depth > EXPRESSION_DEPTH_MAX {
            return Err(self.lexer.bad(self.start, format!("more than {EXPRESSION_DEPTH_MAX} within one another")));
        }
        if self.takes("!")? {
            return Ok(Node::Not(Box::new(self.negation(depth + 1)?)));
        }
        self.primary(depth)
    }

    fn primary(&mut self, depth: usize) -> Result<Node, BadExpression> {
        if self.takes("(")? {
            let node = self.any(depth + 1)?;
            self.demand(&Token::Sign(")"))?;
            return Ok(node);
        }
        match &self.token {
            Token::Number(_) | Token::Text(_) | Token::Name(_) => (),
            Token::Sign(_) | Token::End => return Err(self.unexpected("a value")),
        }
        let start = self.start;
        match self.advance()? {
            Token::Number(number) => Ok(Node::Literal(Value::Number(number))),
            Token::Text(text) => Ok(Node::Literal(Value::Text(text))),
            Token::Name(name) if self.token == Token::Sign("(") => self.call(&name, start, depth),
            Token::Name(name) => self.named(name, start),
            Token::Sign(_) | Token::End => Err(self.unexpected("a value")),
        }
    }

    fn call(&mut self, function: &str, start: usize, depth: usize) -> Result<Node, BadExpression> {
        self.advance()?;
        let node = match function {
            "always" => Node::Literal(Value::Bool(true)),
            "contains" => {
                let within = self.any(depth + 1)?;
                self.demand(&Token::Sign(","))?;
                Node::Contains(Box::new([within, self.any(depth + 1)?]))
            }
            other => {
                return Err(self.lexer.bad(start, format!("no function `{other}`; there are contains and always")));
            }
        };
        self.demand(&Token::Sign(")"))?;
        Ok(node)
    }

    /// A word that stands for a value, or a path.
    fn named(&mut self, name: String, start: usize) -> Result<Node, BadExpression> {
        match name.as_str() {
            "null" => return Ok(Node::Literal(Value::Null)),
            "true" => return Ok(Node::Literal(Value::Bool(true))),
            "false" => return Ok(Node::Literal(Value::Bool(false))),
            _ => (),
        }
        let mut parts = vec![Part::Name(name)];
        loop {
            if self.takes(".")? {
                let Token::Name(_) = &self.token else { return Err(self.unexpected("a name")) };
                parts.extend(part(self.advance()?));
            } else if self.takes("[")? {
                let part = part(self.token.clone()).ok_or_else(|| self.unexpected("a place or 'name'"))?;
                self.advance()?;
                self.demand(&Token::Sign("]"))?;
                parts.push(part);
            } else {
                return Ok(Node::Path(Path { at: start, parts }));
            }
        }
    }
}

fn part(token: Token) -> Option<Part> {
    match token {
        Token::Name(name) | Token::Text(name) => Some(Part::Name(name)),
        Token::Number(place) => place.as_u64().and_then(|place| usize::try_from(place).ok()).map(Part::Item),
        Token::Sign(_) | Token::End => None,
    }
}

fn joined(mut nodes: Vec<Node>, join: impl FnOnce(Vec<Node>) -> Node) -> Node {
    match (nodes.pop(), nodes.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            nodes.extend(last);
            join(nodes)
        }
    }
}
