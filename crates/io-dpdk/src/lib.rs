//! PacketIo over the system's libdpdk, and the offload guard for kernel interfaces.
