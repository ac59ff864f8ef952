//! Requests over UDP that the other side answers one by one (RADIUS accounting, RFC 2866 §2): a window of identifiers, sent
//! again until answered.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::radius;

/// Identifiers under way at once, of the 256 there are: an old answer must not meet a new request of its number.
const WINDOW: usize = 128;
/// Time until a request is sent again, and how often it is sent before the server counts as down.
const AGAIN: Duration = Duration::from_secs(1);
const TRIES: u32 = 5;

/// Requests and what became of them.
#[derive(Debug)]
pub(crate) struct Requests {
    socket: UdpSocket,
    secret: Vec<u8>,
    /// In the order they were put; the first `sent` are under way.
    open: VecDeque<Request>,
    sent: usize,
    identifier: u8,
    accepted: u64,
    /// Has the server answered since the beginning?
    proven: bool,
}

#[derive(Debug)]
struct Request {
    message: Vec<u8>,
    tries: u32,
    again: Instant,
    answered: bool,
}

impl Requests {
    /// `socket` is connected and does not block.
    pub(crate) fn new(socket: UdpSocket, secret: Vec<u8>) -> Self {
        Self { socket, secret, open: VecDeque::new(), sent: 0, identifier: 0, accepted: 0, proven: false }
    }

    pub(crate) fn put(&mut self, message: &[u8]) {
        let again = Instant::now();
        self.open.push_back(Request { message: message.to_vec(), tries: 0, again, answered: false });
        self.accepted += 1;
    }

    /// Requests put so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// The first so many have been answered.
    pub(crate) fn delivered(&self) -> u64 {
        self.accepted - self.open.len() as u64
    }

    /// Is nothing waiting for the window to open?
    pub(crate) fn is_ready(&self) -> bool {
        self.open.len() < WINDOW
    }

    /// Is somebody there?
    pub(crate) fn is_proven(&self) -> bool {
        self.proven
    }

    /// Takes answers and sends what may be sent.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.receive()?;
        while self.open.front().is_some_and(|request| request.answered) {
            self.open.pop_front();
            self.sent -= 1;
        }
        let now = Instant::now();
        for index in 0..self.open.len().min(WINDOW) {
            let is_new = index >= self.sent;
            let Some(request) = self.open.get_mut(index) else { break };
            if request.answered || (!is_new && now < request.again) {
                continue;
            }
            if request.tries == TRIES {
                return Err(io::Error::new(ErrorKind::TimedOut, "the server does not answer"));
            }
            if is_new {
                radius::seal(&mut request.message, self.identifier, &self.secret);
                self.identifier = self.identifier.wrapping_add(1);
                self.sent += 1;
            }
            request.tries += 1;
            request.again = now + AGAIN;
            match self.socket.send(&request.message) {
                Ok(_) => {}
                // Nobody is there yet, or there is no room: it is sent again in time.
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4_096];
        loop {
            let response = match self.socket.recv(&mut buffer) {
                Ok(length) => buffer.get(..length).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if is_passing(&error) => continue,
                Err(error) => return Err(error),
            };
            let mut under_way = self.open.iter_mut().take(self.sent);
            if let Some(request) = under_way.find(|r| radius::answers(response, &r.message, &self.secret)) {
                request.answered = true;
                self.proven = true;
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused | ErrorKind::Interrupted)
}
