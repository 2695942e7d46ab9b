//! `context!`: the values that a template can use.

/// What a template is told, by name: `context! { user, title => "Users" }`. Each value is anything that
/// can be serialised by serde; a name without a value is that of a variable.
///
/// A struct that can be serialised is a context too.
#[macro_export]
macro_rules! context {
    ($($name:ident $(=> $value:expr)?),* $(,)?) => {
        $crate::template::__private::map([
            $((::std::stringify!($name), $crate::__value!($name $(=> $value)?))),*
        ])
    };
}

/// One value of [`context!`](crate::context).
#[doc(hidden)]
#[macro_export]
macro_rules! __value {
    ($name:ident) => {
        $crate::template::__private::value(&$name)
    };
    ($name:ident => $value:expr) => {
        $crate::template::__private::value(&$value)
    };
}

/// What the macro calls.
pub mod __private {
    use std::collections::BTreeMap;

    use minijinja::Value;
    use minijinja::value::Serde;
    use serde::Serialize;

    /// Values by name.
    pub fn map<const COUNT: usize>(values: [(&'static str, Value); COUNT]) -> Value {
        Value::from(BTreeMap::from(values))
    }

    /// A value of anything that can be serialised.
    pub fn value(value: &(impl Serialize + ?Sized)) -> Value {
        Value::from(Serde(value))
    }
}
