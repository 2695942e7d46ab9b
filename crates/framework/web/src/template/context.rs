//! `context!`: the values that a template can use.

/// The values that a template can use, by name: `context! { user, title => "Users" }`. A value is anything
/// that implements `Serialize`. A name without a value stands for the variable of that name.
///
/// A struct that implements `Serialize` is a context too.
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

/// The functions that the macro calls.
pub mod __private {
    use std::collections::BTreeMap;

    use minijinja::Value;
    use minijinja::value::Serde;
    use serde::Serialize;

    /// Values by name.
    pub fn map<const COUNT: usize>(values: [(&'static str, Value); COUNT]) -> Value {
        Value::from(BTreeMap::from(values))
    }

    /// Serializes a value.
    pub fn value(value: &(impl Serialize + ?Sized)) -> Value {
        Value::from(Serde(value))
    }
}
