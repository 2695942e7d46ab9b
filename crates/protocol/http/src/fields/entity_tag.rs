//! Entity tags and lists of them (RFC 9110 sections 8.8.3 and 13.1.1).

/// The validator of one version of a representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// Whether it also validates versions that differ in bytes, but not in meaning.
    pub weak: bool,
    /// The text between the quotation marks.
    pub opaque: &'a [u8],
}

impl<'a> EntityTag<'a> {
    /// Reads exactly one entity tag.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let (tag, rest) = Self::take(text.trim_ascii())?;
        rest.is_empty().then_some(tag)
    }

    /// Splits an entity tag off the front.
    fn take(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (weak, quoted) = match text {
            [b'W', b'/', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let [b'"', quoted @ ..] = quoted else {
            return None;
        };
        let end = memchr::memchr(b'"', quoted)?;
        let (opaque, rest) = quoted.split_at_checked(end)?;
        let valid = |byte: &u8| *byte > b' ' && *byte != 0x7f;
        (opaque.iter().all(valid)).then_some((Self { weak, opaque }, rest.get(1..)?))
    }

    /// Whether both validate the same bytes.
    pub fn strong_eq(&self, other: &Self) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Whether both validate the same meaning.
    pub fn weak_eq(&self, other: &Self) -> bool {
        self.opaque == other.opaque
    }
}

/// The value of `If-Match` or `If-None-Match`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntityTags<'a> {
    /// `*`: any current representation.
    Any,
    /// A list, which is read by iteration.
    List(EntityTagList<'a>),
}

/// The entity tags of a list, up to the first fault in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTagList<'a>(&'a [u8]);

impl<'a> EntityTags<'a> {
    /// Reads the value of one field line.
    pub fn parse(value: &'a [u8]) -> Self {
        match value.trim_ascii() {
            b"*" => Self::Any,
            list => Self::List(EntityTagList(list)),
        }
    }
}

impl<'a> Iterator for EntityTagList<'a> {
    type Item = EntityTag<'a>;

    fn next(&mut self) -> Option<EntityTag<'a>> {
        while let [b',' | b' ' | b'\t', rest @ ..] = self.0 {
            self.0 = rest;
        }
        let taken = EntityTag::take(self.0);
        self.0 = match taken {
            Some((_, rest)) => match rest.trim_ascii_start() {
                [] | [b',', ..] => rest,
                _ => b"",
            },
            None => b"",
        };
        taken.map(|(tag, _)| tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(value: &str) -> Vec<(bool, &str)> {
        match EntityTags::parse(value.as_bytes()) {
            EntityTags::Any => panic!("any"),
            EntityTags::List(list) => list
                .map(|tag| (tag.weak, std::str::from_utf8(tag.opaque).unwrap()))
                .collect(),
        }
    }

    #[test]
    fn reads_lists_with_commas_inside_of_tags() {
        assert_eq!(list("\"a\""), [(false, "a")]);
        assert_eq!(
            list(" \"a,b\" ,, W/\"c\",\"\""),
            [(false, "a,b"), (true, "c"), (false, "")]
        );
        assert_eq!(EntityTags::parse(b" * "), EntityTags::Any);
    }

    #[test]
    fn stops_at_the_first_fault() {
        assert_eq!(list("\"a\", b, \"c\""), [(false, "a")]);
        assert_eq!(list("\"a"), []);
        assert_eq!(list("w/\"a\""), []);
        assert_eq!(list("\"a b\""), []);
        assert_eq!(list("a"), []);
        assert_eq!(EntityTag::parse(b"\"a\", \"b\""), None);
    }

    #[test]
    fn compares_by_section_8_8_3_2() {
        let tag = |text| EntityTag::parse(text).unwrap();
        for (one, two, strong, weak) in [
            (&b"W/\"1\""[..], &b"W/\"1\""[..], false, true),
            (b"W/\"1\"", b"W/\"2\"", false, false),
            (b"W/\"1\"", b"\"1\"", false, true),
            (b"\"1\"", b"\"1\"", true, true),
        ] {
            assert_eq!(tag(one).strong_eq(&tag(two)), strong);
            assert_eq!(tag(one).weak_eq(&tag(two)), weak);
        }
    }
}
