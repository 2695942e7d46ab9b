//! The grammar of conditions:
//!
//! ```text
//! condition  = and *( "or" and )
//! and        = not *( "and" not )
//! not        = *"not" ( "(" condition ")" / comparison / flag / name )
//! comparison = fact operator value
//! operator   = "==" / "!=" / "<" / "<=" / ">" / ">=" / "~" / "!~" / "in" / "matches" / "contains" / "starts_with" / "ends_with"
//! value      = text / word / "@" list / "[" value *( "," value ) "]"
//! ```

use std::ops::Range;

use crate::mistake::Mistake;
use crate::token::{ConditionToken, TokenKind, tokens};

/// The most conditions within one another. They are read and checked by recursion.
const MAX_DEPTH: usize = 64;

/// A condition as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    Any(Vec<Syntax>),
    All(Vec<Syntax>),
    Not(Box<Syntax>),
    /// A fact that is true or false, or the name of another condition.
    Name(Spanned<String>),
    /// `header.x exists`.
    Exists(Spanned<String>),
    Comparison(ComparisonSyntax),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ComparisonSyntax {
    pub(crate) fact: Spanned<String>,
    pub(crate) operator: Spanned<Operator>,
    pub(crate) values: Vec<Spanned<Value>>,
    /// Whether the values were written as a list.
    pub(crate) is_list: bool,
}

/// What was written, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    pub(crate) place: Range<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Word(String),
    List(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
    Regex,
    NoRegex,
    In,
    Matches,
    Contains,
    StartsWith,
    EndsWith,
}

impl Operator {
    const ALL: [(&'static str, Self); 13] = [
        ("==", Self::Equal),
        ("!=", Self::Unequal),
        ("<", Self::Less),
        ("<=", Self::AtMost),
        (">", Self::More),
        (">=", Self::AtLeast),
        ("~", Self::Regex),
        ("!~", Self::NoRegex),
        ("in", Self::In),
        ("matches", Self::Matches),
        ("contains", Self::Contains),
        ("starts_with", Self::StartsWith),
        ("ends_with", Self::EndsWith),
    ];

    fn of(text: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, operator)| *operator)
    }

    pub(crate) fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, operator)| *operator == self);
        found.map_or("", |(name, _)| name)
    }
}

/// Words that are no names.
const RESERVED: [&str; 4] = ["and", "or", "not", "exists"];

/// Reads a condition.
pub(crate) fn parse(text: &str) -> Result<Syntax, Mistake> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        tokens: &tokens,
        end: text.len(),
        depth: 0,
    };
    let syntax = parser.any()?;
    match parser.tokens.first() {
        None => Ok(syntax),
        Some(token) => Err(Mistake::new(
            token.place.clone(),
            "expected `and`, `or` or the end of the condition",
        )),
    }
}

struct Parser<'a> {
    tokens: &'a [ConditionToken],
    end: usize,
    depth: usize,
}

impl Parser<'_> {
    fn any(&mut self) -> Result<Syntax, Mistake> {
        let mut parts = vec![self.all()?];
        while self.take_word("or") {
            parts.push(self.all()?);
        }
        Ok(single(parts, Syntax::Any))
    }

    fn all(&mut self) -> Result<Syntax, Mistake> {
        let mut parts = vec![self.not()?];
        while self.take_word("and") {
            parts.push(self.not()?);
        }
        Ok(single(parts, Syntax::All))
    }

    fn not(&mut self) -> Result<Syntax, Mistake> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Mistake::new(
                self.place(),
                "too many conditions within one another; give parts names of their own",
            ));
        }
        let syntax = if self.take_word("not") {
            Syntax::Not(Box::new(self.not()?))
        } else if self.take(&TokenKind::Open) {
            let inner = self.any()?;
            if !self.take(&TokenKind::Close) {
                return Err(Mistake::new(self.place(), "expected `)`"));
            }
            inner
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(syntax)
    }

    fn comparison(&mut self) -> Result<Syntax, Mistake> {
        let place = self.place();
        let Some(TokenKind::Word(name)) = self.tokens.first().map(|token| token.kind.clone())
        else {
            return Err(Mistake::new(
                place,
                "expected a fact of the request, such as `path`, `client` or `header.accept`",
            ));
        };
        if RESERVED.contains(&name.as_str()) || Operator::of(&name).is_some() {
            return Err(Mistake::new(
                place,
                format!("expected a fact of the request before `{name}`"),
            ));
        }
        self.advance();
        let fact = Spanned { value: name, place };
        if self.take_word("exists") {
            return Ok(Syntax::Exists(fact));
        }
        let Some(operator) = self.operator() else {
            return Ok(Syntax::Name(fact));
        };
        let (values, is_list) = self.values()?;
        Ok(Syntax::Comparison(ComparisonSyntax {
            fact,
            operator,
            values,
            is_list,
        }))
    }

    fn operator(&mut self) -> Option<Spanned<Operator>> {
        let place = self.place();
        let operator = match &self.tokens.first()?.kind {
            TokenKind::Sign(sign) => Operator::of(sign)?,
            TokenKind::Word(word) => Operator::of(word)?,
            _ => return None,
        };
        self.advance();
        Some(Spanned {
            value: operator,
            place,
        })
    }

    fn values(&mut self) -> Result<(Vec<Spanned<Value>>, bool), Mistake> {
        if !self.take(&TokenKind::OpenList) {
            return Ok((vec![self.value()?], false));
        }
        let mut values = Vec::new();
        loop {
            if self.take(&TokenKind::CloseList) {
                return Ok((values, true));
            }
            values.push(self.value()?);
            if !self.take(&TokenKind::Comma) && !self.is_next(&TokenKind::CloseList) {
                return Err(Mistake::new(self.place(), "expected `,` or `]`"));
            }
        }
    }

    fn value(&mut self) -> Result<Spanned<Value>, Mistake> {
        let place = self.place();
        let value = match self.tokens.first().map(|token| &token.kind) {
            Some(TokenKind::Text(text)) => Value::Text(text.clone()),
            Some(TokenKind::Word(word)) if !RESERVED.contains(&word.as_str()) => {
                Value::Word(word.clone())
            }
            Some(TokenKind::List(name)) => Value::List(name.clone()),
            _ => {
                return Err(Mistake::new(
                    place,
                    "expected a value: a text in double quotes, a number, a network or `@` and the name of a list",
                ));
            }
        };
        self.advance();
        Ok(Spanned { value, place })
    }

    fn place(&self) -> Range<usize> {
        let first = self.tokens.first();
        first.map_or(self.end..self.end, |token| token.place.clone())
    }

    fn is_next(&self, kind: &TokenKind) -> bool {
        self.tokens.first().is_some_and(|token| token.kind == *kind)
    }

    fn take(&mut self, kind: &TokenKind) -> bool {
        let is_next = self.is_next(kind);
        if is_next {
            self.advance();
        }
        is_next
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is_next = matches!(self.tokens.first(), Some(ConditionToken { kind: TokenKind::Word(next), .. }) if next == word);
        if is_next {
            self.advance();
        }
        is_next
    }

    fn advance(&mut self) {
        self.tokens = self.tokens.get(1..).unwrap_or_default();
    }
}

fn single(mut parts: Vec<Syntax>, several: impl FnOnce(Vec<Syntax>) -> Syntax) -> Syntax {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        Some(last) => {
            parts.push(last);
            several(parts)
        }
        None => several(parts),
    }
}
