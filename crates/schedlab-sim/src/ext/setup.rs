//! What the missing user half of an object does after loading it and before `ops.init()`: fill maps, run
//! `SEC("syscall")` programs, write memory that it shares with programs.
//!
//! Here is what it can reach; what is to be done comes from outside as a [`SetUp`].

use super::class::Attached;
use super::host::Host;
use schedlab_bpf::exec::Instance;

/// The actions of a user half. Every instance of the scheduler performs them, so they must not depend on
/// anything but the object and the machine.
pub trait SetUp: Send + Sync {
    /// Performs them.
    ///
    /// # Errors
    /// What went wrong and where, for the user.
    fn run(&self, user: &mut UserHalf<'_>) -> Result<(), String>;

    /// Performs what comes once the scheduler is attached.
    ///
    /// # Errors
    /// What went wrong and where, for the user.
    fn attached(&self, _user: &mut UserHalf<'_>) -> Result<(), String> {
        Ok(())
    }
}

/// A loaded instance as its user half sees it.
pub struct UserHalf<'a> {
    instance: &'a mut Instance<Host>,
    host: &'a mut Host,
}

impl UserHalf<'_> {
    /// Runs a program of the image with a context, as `BPF_PROG_TEST_RUN` does; its return value.
    ///
    /// # Errors
    /// A fault in the program, with its place.
    pub fn run(&mut self, program: usize, context: &mut [u8]) -> Result<i32, String> {
        let result = self.instance.call_with_bytes(program, context, self.host);
        result.map(|value| value as i32).map_err(|fault| fault.to_string())
    }

    /// Sets the value of a key of a map of the image, for per-CPU maps on one CPU or on all.
    ///
    /// # Errors
    /// A map that refuses it.
    pub fn update(&mut self, map: usize, key: &[u8], value: &[u8], cpu: Option<u32>) -> Result<(), String> {
        self.instance.map_update_on(map, key, value, cpu).map_err(|error| error.to_string())
    }

    /// Puts a program of the image into a slot of an array of programs; `false` if there is no such slot.
    #[must_use]
    pub fn set_program(&mut self, map: usize, slot: u32, program: usize) -> bool {
        self.instance.set_program(map, slot, program)
    }

    /// Writes memory at an address that a program gave out; `false` if nothing lies there.
    #[must_use]
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        match self.instance.memory().bytes_mut(address, bytes.len() as u64) {
            Some(place) => {
                place.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }

    /// Address of the first value of an array or data section of the image, 0 for other maps.
    #[must_use]
    pub fn values(&self, map: usize) -> u64 {
        self.instance.map_values(map)
    }

    /// Puts a message into a user ring buffer of the image; `false` if the map is none.
    #[must_use]
    pub fn send(&mut self, map: usize, message: &[u8]) -> bool {
        self.instance.user_ring_push(map, message)
    }
}

impl Attached {
    /// Performs a set-up. What its programs execute costs no simulated time.
    pub(crate) fn set_up(&mut self, actions: &dyn SetUp) -> Result<(), String> {
        let mut user = UserHalf { instance: &mut self.instance, host: &mut self.host };
        actions.run(&mut user)?;
        self.forget_executed();
        Ok(())
    }

    /// Performs what comes after `ops.init()`.
    pub(crate) fn set_up_attached(&mut self, actions: &dyn SetUp) -> Result<(), String> {
        let mut user = UserHalf { instance: &mut self.instance, host: &mut self.host };
        actions.attached(&mut user)?;
        self.forget_executed();
        Ok(())
    }
}
