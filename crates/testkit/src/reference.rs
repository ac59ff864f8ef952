//! A placeholder until the module is filled.
