//! Prints the cost of the tables' operations.
fn main() {}
