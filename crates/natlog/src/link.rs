//! The way to a collector: datagrams or a stream. Never waits: what cannot be sent now stays in a bounded buffer.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use carrack_config::ExportTransport;

/// Bytes that wait for a stream's collector beside what the kernel holds.
const BUFFER_BYTES: usize = 256 * 1_024;
/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(3);

/// An open way to a collector.
#[derive(Debug)]
pub(crate) enum Link {
    Udp(UdpSocket),
    Stream(Stream),
}

/// A stream and what it has not taken yet.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: TcpStream,
    buffer: VecDeque<u8>,
}

impl Link {
    pub(crate) fn open(transport: ExportTransport, collector: SocketAddr) -> io::Result<Self> {
        match transport {
            ExportTransport::Udp => {
                let any: SocketAddr =
                    if collector.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
                let socket = UdpSocket::bind(any)?;
                socket.connect(collector)?;
                socket.set_nonblocking(true)?;
                Ok(Self::Udp(socket))
            }
            ExportTransport::Tcp | ExportTransport::Tls => {
                let socket = TcpStream::connect_timeout(&collector, CONNECT)?;
                socket.set_nonblocking(true)?;
                socket.set_nodelay(true)?;
                Ok(Self::Stream(Stream { socket, buffer: VecDeque::new() }))
            }
        }
    }

    /// Is there room for another message?
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::Udp(_) => true,
            Self::Stream(stream) => stream.buffer.len() < BUFFER_BYTES,
        }
    }

    /// Takes a whole message. `Ok(false)`: a datagram that the kernel had no room for.
    pub(crate) fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        match self {
            Self::Udp(socket) => match socket.send(message) {
                Ok(_) => Ok(true),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
                // The last datagram found nobody; this one may.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    socket.send(message).map(|_| true)
                }
                Err(error) => Err(error),
            },
            Self::Stream(stream) => {
                stream.buffer.extend(message);
                stream.flush().map(|()| true)
            }
        }
    }

    /// Sends what waits, as far as the collector takes it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Udp(_) => Ok(()),
            Self::Stream(stream) => stream.flush(),
        }
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        match self {
            Self::Udp(_) => 0,
            Self::Stream(stream) => stream.buffer.len(),
        }
    }
}

impl Stream {
    fn flush(&mut self) -> io::Result<()> {
        self.see_end()?;
        while !self.buffer.is_empty() {
            let (first, _) = self.buffer.as_slices();
            match self.socket.write(first) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.buffer.drain(..written);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Collectors send nothing: what can be read is the end of the stream.
    fn see_end(&mut self) -> io::Result<()> {
        match self.socket.peek(&mut [0; 1]) {
            Ok(0) => Err(io::Error::new(ErrorKind::ConnectionReset, "the collector closed the connection")),
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}
