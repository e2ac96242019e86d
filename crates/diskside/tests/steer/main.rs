//! The tasks of a session besides running a function once: stopping it, choosing where it runs while others use the
//! target, continuing when a target is gone, preparing what runs often.

mod attach;
mod cancel;
mod loss;
mod prepared;
mod queue;
mod several;
mod world;
