//! Links that are lost and come back, such as that of a shared-memory port whose peer died and was started again.

use std::sync::Arc;

use crate::control::Control;
use crate::shared::lock;
use crate::stats::{PortReport, Words};

/// What is known of a port's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Link {
    /// It has not been up yet.
    #[default]
    New,
    Up,
    Lost,
}

impl Link {
    /// What it is now that it was seen up or not.
    const fn seen(self, up: bool) -> Self {
        match (self, up) {
            (_, true) => Self::Up,
            (Self::New, false) => Self::New,
            (Self::Up | Self::Lost, false) => Self::Lost,
        }
    }
}

impl Control {
    /// Tells what became of links since the last look, and counts those that came back.
    pub(crate) fn watch_links(&mut self) {
        self.state.links.resize(self.shared.ports(), Link::New);
        for (port, link) in self.state.links.iter_mut().enumerate() {
            let Some(board) = self.shared.port_board(port) else { continue };
            let up = PortReport::read(&mut Words(&board.read())).link.up;
            let before = std::mem::replace(link, link.seen(up));
            let name = || {
                let snapshot = Arc::clone(&lock(&self.shared.snapshot));
                snapshot.ports.get(port).map_or_else(|| port.to_string(), |port| port.name.clone())
            };
            match (before, *link) {
                (Link::Up, Link::Lost) => tracing::warn!("port {} has lost its link", name()),
                (Link::Lost, Link::Up) => {
                    tracing::info!("port {} has its link again", name());
                    self.shared.count_port_resumed(port);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_was_never_up_is_not_lost_and_does_not_come_back() {
        let mut link = Link::New;
        let seen = [false, true, true, false, false, true].map(|up| {
            link = link.seen(up);
            link
        });
        assert_eq!(seen, [Link::New, Link::Up, Link::Up, Link::Lost, Link::Lost, Link::Up]);
    }
}
