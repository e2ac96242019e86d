//! The `diskside` command.

fn main() {}
