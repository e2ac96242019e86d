//! The program `diskside-objects`, which is built with the feature `store`: it reads one object of a store for the volume of a
//! server. [`diskside_volume::media::object`] is the server's side.

#![forbid(unsafe_code)]
