//! How attributes ask a type for its description, if it has one.
//!
//! Of two methods of one name the compiler takes the one that needs one reference less, and that
//! one is there for types that can be described.

use std::marker::PhantomData;

use super::{DescribeArgument, DescribeResponse, Operation};

/// A type that is asked.
#[derive(Debug)]
pub struct Probe<T>(PhantomData<T>);

impl<T> Probe<T> {
    /// A probe for a type.
    #[expect(
        clippy::new_without_default,
        reason = "only code that attributes write calls it"
    )]
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

/// An argument that can be described.
pub trait Described {
    /// Describes it.
    fn argument(&self, operation: &mut Operation<'_>);
}

impl<T: DescribeArgument> Described for Probe<T> {
    fn argument(&self, operation: &mut Operation<'_>) {
        T::describe(operation);
    }
}

/// A response that can be described.
pub trait DescribedResponse {
    /// Describes it.
    fn response(&self, operation: &mut Operation<'_>);
}

impl<T: DescribeResponse> DescribedResponse for Probe<T> {
    fn response(&self, operation: &mut Operation<'_>) {
        T::describe(operation);
    }
}

/// What cannot be described.
pub trait Undescribed {
    /// Does nothing.
    fn argument(&self, operation: &mut Operation<'_>);

    /// Does nothing.
    fn response(&self, operation: &mut Operation<'_>);
}

impl<T> Undescribed for &Probe<T> {
    fn argument(&self, _: &mut Operation<'_>) {}

    fn response(&self, _: &mut Operation<'_>) {}
}
