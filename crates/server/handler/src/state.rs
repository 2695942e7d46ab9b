//! The state of an application: one value of each type, for its handlers.

use std::any::{Any, TypeId};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// The function that makes the state of one type for a worker.
#[derive(Clone)]
pub struct StateSource {
    id: TypeId,
    make: Arc<dyn Fn() -> Rc<dyn Any> + Send + Sync>,
}

impl StateSource {
    /// A value that is cloned for each worker.
    pub fn shared<T: Clone + Send + Sync + 'static>(value: T) -> Self {
        Self::made(move || value.clone())
    }

    /// The type of the value.
    pub fn type_id(&self) -> TypeId {
        self.id
    }

    /// A value that each worker makes itself.
    pub fn made<T: 'static>(make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Self {
            id: TypeId::of::<T>(),
            make: Arc::new(move || Rc::new(make())),
        }
    }
}

/// The values of a group on one worker, and of the groups around it.
#[derive(Clone, Default)]
pub struct States(Vec<(TypeId, Rc<dyn Any>)>);

impl States {
    /// These values, replaced and extended by the values of the sources.
    pub fn with(&self, sources: &[StateSource]) -> Self {
        let mut states = self.0.clone();
        for source in sources {
            states.retain(|(id, _)| *id != source.id);
            states.push((source.id, (source.make)()));
        }
        Self(states)
    }

    /// These values and one of a new type.
    pub fn and<T: 'static>(mut self, value: Rc<T>) -> Self {
        self.0.push((TypeId::of::<T>(), value));
        self
    }

    /// A shared reference to the value of this type.
    pub fn get_rc<T: 'static>(&self) -> Option<Rc<T>> {
        let wanted = TypeId::of::<T>();
        let (_, value) = self.0.iter().find(|(id, _)| *id == wanted)?;
        value.clone().downcast().ok()
    }

    /// The value of this type.
    pub fn get<T: 'static>(&self) -> Option<&T> {
        let wanted = TypeId::of::<T>();
        let (_, value) = self.0.iter().find(|(id, _)| *id == wanted)?;
        value.downcast_ref()
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} states", self.0.len())
    }
}
