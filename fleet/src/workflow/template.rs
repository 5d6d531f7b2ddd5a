//! Texts with expressions in them, and JSON with such texts in it.

use std::collections::BTreeMap;

use super::expression::{BadExpression, Expression, Part, Scope};
use super::value::Value;
use crate::limits::RENDERED_BYTES_MAX;

/// What opens an expression in a text.
pub(super) const OPEN: &str = "${{";

/// A text in which expressions are replaced.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    Expression(Expression),
}

/// JSON in whose texts expressions are replaced.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    Fixed(Value),
    /// A text that is one expression keeps the type of its value.
    Text(Template),
    List(Vec<Shape>),
    Object(BTreeMap<String, Shape>),
}

/// A path that names nothing that there can be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoSuchName(pub(super) String);

/// Which paths there are.
pub(super) trait Names {
    /// Refuses a path that can never be found.
    fn check(&self, path: &[Part]) -> Result<(), NoSuchName>;
}

/// The texts of a step come to more than is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its expressions come to more than {RENDERED_BYTES_MAX} bytes")]
pub(super) struct TooLong;

/// Replaces the expressions of one step.
pub(super) struct Rendering<'a> {
    /// `None` before there is a run: stand-ins take their place.
    scope: Option<&'a dyn Scope>,
    left_bytes: usize,
}

/// An expression whose paths there are.
pub(super) fn checked(text: &str, expression: Expression, names: &dyn Names) -> Result<Expression, BadExpression> {
    for path in expression.paths() {
        names.check(&path.parts).map_err(|unknown| BadExpression::new(text, path.at, unknown.0))?;
    }
    Ok(expression)
}

impl Template {
    /// Reads a text.
    pub(super) fn parse(text: &str, names: &dyn Names) -> Result<Self, BadExpression> {
        let mut pieces = Vec::new();
        let mut at = 0;
        while let Some(length) = text[at..].find(OPEN) {
            pieces.push(Piece::Text(text[at..at + length].to_owned()));
            let (expression, end) = Expression::parse_to_braces(text, at + length + OPEN.len())?;
            pieces.push(Piece::Expression(checked(text, expression, names)?));
            at = end;
        }
        pieces.push(Piece::Text(text[at..].to_owned()));
        pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
        Ok(Self(pieces))
    }

    /// Whether there is nothing in it to be replaced.
    pub(super) fn is_fixed(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// The expression that is all of it.
    fn only(&self) -> Option<&Expression> {
        match self.0.as_slice() {
            [Piece::Expression(expression)] => Some(expression),
            _ => None,
        }
    }
}

impl Shape {
    /// Reads a value.
    pub(super) fn parse(value: Value, names: &dyn Names) -> Result<Self, BadExpression> {
        Ok(match value {
            Value::Text(text) => Self::Text(Template::parse(&text, names)?),
            Value::List(values) => {
                Self::List(values.into_iter().map(|value| Self::parse(value, names)).collect::<Result<_, _>>()?)
            }
            Value::Object(values) => {
                let read = |(name, value)| Ok((name, Self::parse(value, names)?));
                Self::Object(values.into_iter().map(read).collect::<Result<_, _>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Fixed(value),
        })
    }

    /// Whether there is nothing in it to be replaced.
    pub(super) fn is_fixed(&self) -> bool {
        match self {
            Self::Fixed(_) => true,
            Self::Text(text) => text.is_fixed(),
            Self::List(shapes) => shapes.iter().all(Self::is_fixed),
            Self::Object(shapes) => shapes.values().all(Self::is_fixed),
        }
    }
}

impl<'a> Rendering<'a> {
    /// For an attempt, by what is known then.
    pub(super) fn live(scope: &'a dyn Scope) -> Self {
        Self { scope: Some(scope), left_bytes: RENDERED_BYTES_MAX }
    }

    /// For a look at what does not depend on expressions.
    pub(super) fn dry() -> Self {
        Self { scope: None, left_bytes: RENDERED_BYTES_MAX }
    }

    fn take(&mut self, bytes: usize) -> Result<(), TooLong> {
        self.left_bytes = self.left_bytes.checked_sub(bytes).ok_or(TooLong)?;
        Ok(())
    }

    /// The text that it comes to; before there is a run, of one with expressions the stand-in.
    pub(super) fn text(&mut self, template: &Template, stand_in: &str) -> Result<String, TooLong> {
        let Some(scope) = self.scope.or_else(|| template.is_fixed().then_some(&Nothing as &dyn Scope)) else {
            return Ok(stand_in.to_owned());
        };
        let mut text = String::new();
        for piece in &template.0 {
            match piece {
                Piece::Text(fixed) => {
                    self.take(fixed.len())?;
                    text.push_str(fixed);
                }
                Piece::Expression(expression) => {
                    let value = expression.value(scope);
                    let shown = value.shown();
                    self.take(shown.len())?;
                    text.push_str(&shown);
                }
            }
        }
        Ok(text)
    }

    /// The value that it comes to; before there is a run, of one with expressions nothing.
    pub(super) fn value(&mut self, shape: &Shape) -> Result<Option<Value>, TooLong> {
        if self.scope.is_none() && !shape.is_fixed() {
            return Ok(None);
        }
        self.replaced(shape).map(Some)
    }

    fn replaced(&mut self, shape: &Shape) -> Result<Value, TooLong> {
        Ok(match shape {
            Shape::Fixed(value) => {
                self.take(value.size_bytes())?;
                value.clone()
            }
            Shape::Text(template) => match (template.only(), self.scope) {
                (Some(expression), Some(scope)) => {
                    let value = expression.value(scope);
                    self.take(value.size_bytes())?;
                    value.into_owned()
                }
                (Some(_) | None, Some(_) | None) => Value::Text(self.text(template, "")?),
            },
            Shape::List(shapes) => {
                Value::List(shapes.iter().map(|shape| self.replaced(shape)).collect::<Result<_, _>>()?)
            }
            Shape::Object(shapes) => {
                let mut values = BTreeMap::new();
                for (name, shape) in shapes {
                    self.take(name.len())?;
                    values.insert(name.clone(), self.replaced(shape)?);
                }
                Value::Object(values)
            }
        })
    }
}

/// Knows nothing.
struct Nothing;

impl Scope for Nothing {
    fn value(&self, _: &[Part]) -> std::borrow::Cow<'_, Value> {
        std::borrow::Cow::Owned(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    /// Knows `a`, a text, `n`, a number, and nothing else.
    struct Two;

    impl Names for Two {
        fn check(&self, path: &[Part]) -> Result<(), NoSuchName> {
            match path {
                [Part::Name(name)] if name == "a" || name == "n" => Ok(()),
                _ => Err(NoSuchName("no such thing".to_owned())),
            }
        }
    }

    impl Scope for Two {
        fn value(&self, path: &[Part]) -> Cow<'_, Value> {
            let is_a = path == [Part::Name("a".to_owned())];
            Cow::Owned(if is_a { Value::from("it's") } else { Value::from(3_u64) })
        }
    }

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        let found = Template::parse(text, &Two).map(|template| Rendering::live(&Two).text(&template, "").unwrap());
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(found.map_err(|error| error.to_string()), expected, "{text}");
    }

    #[test]
    fn texts_come_as_they_are_and_other_values_as_json() {
        check("", Ok(""));
        check("no $ {{ } }} in it", Ok("no $ {{ } }} in it"));
        check("${{a}}", Ok("it's"));
        check("<${{ a }}${{ n }}|${{ null }}>", Ok("<it's3|null>"));
        check("ä ${{ '}} ''${{' }} z", Ok("ä }} '${{ z"));
        check("${{ a }} }}", Ok("it's }}"));
    }

    #[test]
    fn a_bad_expression_is_found_by_its_letter() {
        check("ä ${{ b }}", Err("at letter 7: no such thing"));
        check("${{ a", Err("at letter 6: `}}` is expected, not the end"));
        check("${{ }}", Err("at letter 5: a value is expected, not `}}`"));
        check("${{ a ${{ n }}", Err("at letter 7: '$' means nothing here"));
    }

    fn shape(text: &str) -> Shape {
        Shape::parse(Value::of_bytes(text.as_bytes()), &Two).unwrap()
    }

    #[test]
    fn a_text_of_a_value_that_is_one_expression_keeps_its_type() {
        let shape = shape(r#"{"a":["${{ n }}"," ${{ n }}",true,{"b":"${{ a }}"}],"${{ n }}":null}"#);
        let value = Rendering::live(&Two).value(&shape).unwrap().unwrap();
        assert_eq!(value.json(), r#"{"${{ n }}":null,"a":[3," 3",true,{"b":"it's"}]}"#);
        assert_eq!(Rendering::dry().value(&shape), Ok(None));
    }

    #[test]
    fn what_has_no_expressions_is_known_before_there_is_a_run() {
        let template = |text| Template::parse(text, &Two).unwrap();
        assert_eq!(Rendering::dry().text(&template("x"), "y"), Ok("x".to_owned()));
        assert_eq!(Rendering::dry().text(&template("${{ a }}"), "y"), Ok("y".to_owned()));
        assert_eq!(Rendering::dry().value(&shape("[1,\"x\"]")).unwrap().unwrap().json(), "[1,\"x\"]");
    }

    #[test]
    fn all_that_a_step_sends_is_bounded_together() {
        let template = Template::parse(&"x".repeat(RENDERED_BYTES_MAX - 4), &Two).unwrap();
        let more = Template::parse("${{ a }}", &Two).unwrap();
        let mut rendering = Rendering::live(&Two);
        assert!(rendering.text(&template, "").is_ok() && rendering.text(&more, "").is_ok());
        assert_eq!(rendering.text(&more, ""), Err(TooLong));
        assert_eq!(rendering.value(&shape("[1]")), Err(TooLong));
    }
}
