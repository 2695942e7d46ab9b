//! Closures that workers cannot share.

use std::rc::Rc;

use apus::App;

fn main() {
    let shared = Rc::new(1);
    let _ = App::new().get("/", move || shared.to_string()); //~ `Rc<{integer}>` cannot be sent between threads safely
}
