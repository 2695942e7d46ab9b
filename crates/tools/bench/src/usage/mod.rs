//! What processes and the whole machine consume, as the kernel of Linux tells: CPU, context switches, memory, descriptors, disks,
//! energy.

mod energy;
mod machine;
mod process;

pub use energy::EnergyMeter;
pub use machine::{MachineReading, MachineReport};
pub use process::{ProcessReading, ServerProcesses};
