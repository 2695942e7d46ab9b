//! The messages about fields in the language of a request.

use std::borrow::Cow;
use std::fmt::Display;

use fluent_bundle::{FluentArgs, FluentValue};
use garde::i18n::{
    DefaultI18n, I18n, InvalidCreditCard, InvalidEmail, InvalidPhoneNumber, InvalidUrl, IpKind,
};

use crate::Language;

impl Language {
    /// The text `validation-NAME`, or the message of garde.
    fn message<'a>(
        &self,
        name: &str,
        values: impl IntoIterator<Item = (&'a str, FluentValue<'a>)>,
        default: impl FnOnce() -> Cow<'static, str>,
    ) -> Cow<'static, str> {
        let arguments: FluentArgs<'_> = values.into_iter().collect();
        let text = self.own_text(&format!("validation-{name}"), Some(&arguments));
        text.map_or_else(default, Cow::Owned)
    }

    /// The text `validation-missing`, if the language has it: a field has no value.
    pub fn missing_field(&self) -> Option<String> {
        self.own_text("validation-missing", None)
    }

    /// The text `validation-unreadable`, if the language has it: the value of a field has another type.
    pub fn unreadable_field(&self) -> Option<String> {
        self.own_text("validation-unreadable", None)
    }

    /// The text `validation-KEY`, if the language has it, for a rule of the application whose message is a key, such as
    /// `not-a-slug`.
    pub fn message_of_rule(&self, key: &str) -> Option<String> {
        let is_key = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_key = !key.is_empty() && key.bytes().all(is_key);
        is_key
            .then(|| self.own_text(&format!("validation-{key}"), None))
            .flatten()
    }
}

/// A length as an argument.
fn length(value: usize) -> FluentValue<'static> {
    u32::try_from(value).unwrap_or(u32::MAX).into()
}

/// A bound or a pattern as an argument.
fn shown(value: &dyn Display) -> FluentValue<'static> {
    value.to_string().into()
}

/// The texts `validation-length-min` (`$min`), `validation-length-max` (`$max`), `validation-range-min` (`$min`),
/// `validation-range-max` (`$max`), `validation-pattern`, `validation-contains` (`$pattern`), `validation-prefix` (`$pattern`),
/// `validation-suffix` (`$pattern`), `validation-matches` (`$field`), `validation-url`, `validation-email`,
/// `validation-phone-number`, `validation-ip`, `validation-credit-card`, `validation-ascii`, `validation-alphanumeric` and
/// `validation-required`. What a language lacks is in English.
impl I18n for Language {
    fn length_lower_than(&self, min: usize) -> Cow<'static, str> {
        let default = || DefaultI18n.length_lower_than(min);
        self.message("length-min", [("min", length(min))], default)
    }

    fn length_greater_than(&self, max: usize) -> Cow<'static, str> {
        let default = || DefaultI18n.length_greater_than(max);
        self.message("length-max", [("max", length(max))], default)
    }

    fn range_lower_than(&self, min: &dyn Display) -> Cow<'static, str> {
        let default = || DefaultI18n.range_lower_than(min);
        self.message("range-min", [("min", shown(min))], default)
    }

    fn range_greater_than(&self, max: &dyn Display) -> Cow<'static, str> {
        let default = || DefaultI18n.range_greater_than(max);
        self.message("range-max", [("max", shown(max))], default)
    }

    fn credit_card_invalid(&self, reason: InvalidCreditCard) -> Cow<'static, str> {
        let default = || DefaultI18n.credit_card_invalid(reason);
        self.message("credit-card", [], default)
    }

    fn pattern_no_match(&self, pattern: &dyn Display) -> Cow<'static, str> {
        let default = || DefaultI18n.pattern_no_match(pattern);
        self.message("pattern", [("pattern", shown(pattern))], default)
    }

    fn contains_missing(&self, pattern: &dyn Display) -> Cow<'static, str> {
        let default = || DefaultI18n.contains_missing(pattern);
        self.message("contains", [("pattern", shown(pattern))], default)
    }

    fn url_invalid(&self, reason: InvalidUrl) -> Cow<'static, str> {
        self.message("url", [], || DefaultI18n.url_invalid(reason))
    }

    fn prefix_missing(&self, pattern: &dyn Display) -> Cow<'static, str> {
        let default = || DefaultI18n.prefix_missing(pattern);
        self.message("prefix", [("pattern", shown(pattern))], default)
    }

    fn suffix_missing(&self, pattern: &dyn Display) -> Cow<'static, str> {
        let default = || DefaultI18n.suffix_missing(pattern);
        self.message("suffix", [("pattern", shown(pattern))], default)
    }

    fn phone_number_invalid(&self, reason: InvalidPhoneNumber) -> Cow<'static, str> {
        let default = || DefaultI18n.phone_number_invalid(reason);
        self.message("phone-number", [], default)
    }

    fn ip_invalid(&self, kind: IpKind) -> Cow<'static, str> {
        self.message("ip", [], || DefaultI18n.ip_invalid(kind))
    }

    fn matches_field_mismatch(&self, field: &dyn Display) -> Cow<'static, str> {
        let default = || DefaultI18n.matches_field_mismatch(field);
        self.message("matches", [("field", shown(field))], default)
    }

    fn email_invalid(&self, reason: InvalidEmail) -> Cow<'static, str> {
        self.message("email", [], || DefaultI18n.email_invalid(reason))
    }

    fn ascii_invalid(&self) -> Cow<'static, str> {
        self.message("ascii", [], || DefaultI18n.ascii_invalid())
    }

    fn alphanumeric_invalid(&self) -> Cow<'static, str> {
        self.message("alphanumeric", [], || DefaultI18n.alphanumeric_invalid())
    }

    fn required_not_set(&self) -> Cow<'static, str> {
        self.message("required", [], || DefaultI18n.required_not_set())
    }
}
