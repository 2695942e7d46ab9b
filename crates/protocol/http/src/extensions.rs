//! Values of any type that layers attach to a request.

use std::any::Any;
use std::fmt;

use smallvec::SmallVec;

/// Values of any type, one of each: what layers attach to a request for inner layers and the handler.
///
/// There are few of them, so they are a list that is searched. A value costs one allocation, and none is hashed.
#[derive(Clone, Default)]
pub struct Extensions {
    values: SmallVec<[Box<dyn ExtensionValue>; 2]>,
    /// The values of a request of the `http` crate. Their types are not known.
    converted: Option<Box<http::Extensions>>,
}

trait ExtensionValue: Any + Send + Sync {
    fn clone_boxed(&self) -> Box<dyn ExtensionValue>;

    /// Moves the value to the extensions of a message of the `http` crate.
    fn insert_into(self: Box<Self>, extensions: &mut http::Extensions);
}

impl<T: Clone + Send + Sync + 'static> ExtensionValue for T {
    fn clone_boxed(&self) -> Box<dyn ExtensionValue> {
        Box::new(self.clone())
    }

    fn insert_into(self: Box<Self>, extensions: &mut http::Extensions) {
        extensions.insert(*self);
    }
}

impl Extensions {
    /// No values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.converted.is_none()
    }

    /// Adds a value, and returns the one of this type that it replaces.
    pub fn insert<T: Clone + Send + Sync + 'static>(&mut self, value: T) -> Option<T> {
        if let Some(known) = self.get_mut::<T>() {
            return Some(std::mem::replace(known, value));
        }
        self.values.push(Box::new(value));
        None
    }

    /// The value of this type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        let values = self.values.iter().map(|value| &**value as &dyn Any);
        let mut found = values.filter_map(|value| value.downcast_ref());
        found.next().or_else(|| self.converted.as_ref()?.get())
    }

    /// The value of this type to change.
    pub fn get_mut<T: Send + Sync + 'static>(&mut self) -> Option<&mut T> {
        let values = self
            .values
            .iter_mut()
            .map(|value| &mut **value as &mut dyn Any);
        let mut found = values.filter_map(|value| value.downcast_mut());
        found.next().or_else(|| self.converted.as_mut()?.get_mut())
    }

    /// Removes the value of this type.
    pub fn remove<T: Send + Sync + 'static>(&mut self) -> Option<T> {
        let mut values = self.values.iter().map(|value| &**value as &dyn Any);
        if let Some(index) = values.position(<dyn Any>::is::<T>) {
            let value: Box<dyn Any> = self.values.remove(index);
            return Some(*value.downcast().ok()?);
        }
        self.converted.as_mut()?.remove()
    }
}

impl Clone for Box<dyn ExtensionValue> {
    fn clone(&self) -> Self {
        // The box is cloneable, too, but its value is meant.
        (**self).clone_boxed()
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions").finish_non_exhaustive()
    }
}

impl From<http::Extensions> for Extensions {
    fn from(extensions: http::Extensions) -> Self {
        Self {
            values: SmallVec::new(),
            converted: (!extensions.is_empty()).then(|| Box::new(extensions)),
        }
    }
}

impl From<Extensions> for http::Extensions {
    fn from(extensions: Extensions) -> Self {
        let mut converted = extensions.converted.map_or_else(Self::new, |known| *known);
        for value in extensions.values {
            value.insert_into(&mut converted);
        }
        converted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Name(&'static str);

    #[test]
    fn keeps_one_value_of_each_type() {
        let mut extensions = Extensions::new();
        assert!(extensions.is_empty());
        assert_eq!(extensions.insert(Name("first")), None);
        assert_eq!(extensions.insert(7_u8), None);
        assert_eq!(extensions.insert(7_u16), None);
        assert_eq!(extensions.insert(Name("second")), Some(Name("first")));
        assert_eq!(extensions.get(), Some(&Name("second")));
        assert_eq!(extensions.get(), Some(&7_u16));
        assert_eq!(extensions.get::<u32>(), None);
        *extensions.get_mut::<u8>().unwrap() = 8;
        assert_eq!(extensions.remove(), Some(8_u8));
        assert_eq!(extensions.remove::<u8>(), None);
    }

    #[test]
    fn a_copy_has_values_of_its_own() {
        let mut extensions = Extensions::new();
        extensions.insert(Name("first"));
        let copy = extensions.clone();
        extensions.insert(Name("second"));
        assert_eq!(copy.get(), Some(&Name("first")));
    }

    #[test]
    fn values_pass_through_a_message_of_the_http_crate() {
        let mut extensions = Extensions::new();
        extensions.insert(Name("first"));
        extensions.insert(7_u8);
        let mut converted = http::Extensions::from(extensions);
        assert_eq!(converted.get(), Some(&Name("first")));
        converted.insert(8_u16);
        let mut back = Extensions::from(converted);
        assert_eq!(back.insert(9_u16), Some(8));
        back.insert(1_u32);
        assert_eq!(back.get(), Some(&7_u8));
        assert_eq!(back.remove(), Some(Name("first")));
        let converted = http::Extensions::from(back);
        assert_eq!(converted.get(), Some(&9_u16));
        assert_eq!(converted.get(), Some(&1_u32));
        assert_eq!(converted.get::<Name>(), None);
    }
}
