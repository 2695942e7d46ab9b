//! The connections of an endpoint that have something to do in its next turn.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;

use crate::core::ConnectionCore;

/// The connections that have something to send, or whose timers have changed. Each is in it once.
#[derive(Default)]
pub(crate) struct WorkQueue {
    connections: RefCell<VecDeque<Rc<ConnectionCore>>>,
    /// The task of the endpoint.
    task: RefCell<Option<Waker>>,
}

impl WorkQueue {
    /// Adds a connection in the turn of the endpoint.
    pub(crate) fn push(&self, connection: &Rc<ConnectionCore>) {
        if !connection.is_scheduled.replace(true) {
            self.connections
                .borrow_mut()
                .push_back(Rc::clone(connection));
        }
    }

    /// Adds a connection, and wakes the task of the endpoint.
    pub(crate) fn schedule(&self, connection: &Rc<ConnectionCore>) {
        self.push(connection);
        self.wake();
    }

    /// Wakes the task of the endpoint.
    pub(crate) fn wake(&self) {
        if let Some(task) = &*self.task.borrow() {
            task.wake_by_ref();
        }
    }

    /// Takes the connection that has waited longest.
    pub(crate) fn pop(&self) -> Option<Rc<ConnectionCore>> {
        let connection = self.connections.borrow_mut().pop_front()?;
        connection.is_scheduled.set(false);
        Some(connection)
    }

    /// The connection at this place of the queue.
    pub(crate) fn get(&self, index: usize) -> Option<Rc<ConnectionCore>> {
        self.connections.borrow().get(index).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.connections.borrow().len()
    }

    pub(crate) fn set_task(&self, waker: &Waker) {
        let mut task = self.task.borrow_mut();
        match &mut *task {
            Some(task) => task.clone_from(waker),
            None => *task = Some(waker.clone()),
        }
    }
}
