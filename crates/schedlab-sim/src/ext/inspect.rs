//! What whoever runs a simulation may ask of its scheduler: the log of callbacks, global variables, the end.

use super::class::Attached;
use super::consts::SCX_EXIT_UNREG;
use super::trace::CallTrace;
use crate::error::SimError;
use crate::simulation::Simulation;
use schedlab_bpf::image::MapOrigin;
use schedlab_model::outcome::SchedulerExit;

impl Attached {
    /// Whether [`Attached::set_live`] would do it.
    pub(crate) fn check_live(&self, name: &str, value: i64) -> Result<(), SimError> {
        let fail = |reason: String| SimError::Setting { name: name.to_owned(), reason };
        let image = self.scheduler.image();
        let place = image.locate(name).map_err(|error| fail(error.to_string()))?;
        if matches!(image.maps[place.map].origin, MapOrigin::Rodata | MapOrigin::Kconfig) {
            let reason =
                "it is fixed once the scheduler is attached (.rodata): set it from the start".to_owned();
            return Err(fail(reason));
        }
        match self.scheduler.knobs().into_iter().find(|knob| knob.name == name) {
            Some(knob) => knob.check(value).map_err(|error| fail(error.to_string())),
            None => Ok(()),
        }
    }

    /// Sets a global variable while the scheduler runs, as a user half does through its memory map.
    pub(crate) fn set_live(&mut self, name: &str, value: i64) -> Result<(), SimError> {
        self.check_live(name, value)?;
        self.set_global(name, value)
    }

    /// Bytes of a global variable of the object.
    pub(super) fn global_bytes(&mut self, name: &str) -> Option<&[u8]> {
        let place = self.scheduler.image().locate(name).ok()?;
        let size = u64::from(self.scheduler.image().maps[place.map].value_size);
        let values = self.instance.map_values(place.map);
        let bytes = self.instance.memory().bytes(values, size)?;
        bytes.get(place.offset as usize..)?.get(..place.size as usize)
    }

    /// Value of a global variable of the object.
    pub(crate) fn global(&mut self, name: &str) -> Option<i64> {
        let bytes = self.global_bytes(name)?;
        let mut word = [0; 8];
        word.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(i64::from_le_bytes(word))
    }
}

impl Simulation {
    /// Keeps a log of the callbacks of ext schedulers, of those that come later too, from now on; for comparing with a
    /// real kernel.
    pub fn log_callbacks(&mut self) {
        self.core.ext.start_trace();
    }

    /// The log so far; it ends here.
    pub fn take_callbacks(&mut self) -> CallTrace {
        self.core.ext.attached().map_or_else(CallTrace::default, Attached::take_trace)
    }

    /// Value of a global variable of the scheduler's object, at most 8 bytes wide and not sign-extended; `None`
    /// without such a variable or without an object.
    pub fn global(&mut self, name: &str) -> Option<i64> {
        self.core.ext.attached()?.global(name)
    }

    /// Bytes of a global variable of the scheduler's object, of any type; `None` without such a variable or object.
    pub fn global_bytes(&mut self, name: &str) -> Option<Vec<u8>> {
        self.core.ext.attached()?.global_bytes(name).map(<[u8]>::to_vec)
    }

    /// Ends the scheduler as its loader does (`SCX_EXIT_UNREG`); its tasks go to the fair class. To be called
    /// after the run. Why it ended: this, or what ended it before. `None` without an object.
    pub fn unregister(&mut self) -> Option<SchedulerExit> {
        self.core.ext.attached()?.host.claim_exit(SCX_EXIT_UNREG, 0, -1, String::new());
        self.end_scheduler();
        self.scheduler_exit.clone()
    }
}
