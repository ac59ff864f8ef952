//! Processors for which nothing is written here.

use carrack_frame::Frame;

use crate::{Pass, Pattern};

/// Never there.
#[derive(Debug, Clone, Copy)]
pub enum Quads {}

impl Quads {
    /// Nothing.
    #[must_use]
    pub fn detect() -> Option<Self> {
        None
    }

    /// Never called.
    #[must_use]
    pub fn recognise<const TAG: usize>(self, _: &Pattern, _: &[Frame], _: &mut [Pass]) -> usize {
        match self {}
    }

    /// Never called.
    #[must_use]
    pub fn recognise_six<const TAG: usize>(self, _: &Pattern, _: &[Frame], _: &mut [Pass]) -> usize {
        match self {}
    }
}
