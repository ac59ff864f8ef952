//! Small index types. Each is an index into a dense array of the current snapshot.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl $name {
            /// The index as a `usize`, for array access.
            #[inline]
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A physical (or in-process) port, in config order.
    PortId(u16)
);
id!(
    /// A logical interface: a port's untagged side, or a VLAN sub-interface of it.
    IfIndex(u16)
);
id!(
    /// A routing instance: an address space with its own routes. 0 is `default`.
    VrfId(u16)
);
id!(
    /// A NAT instance.
    InstanceId(u16)
);
id!(
    /// A NAT pool.
    PoolId(u16)
);
id!(
    /// A worker thread, in config order.
    WorkerId(u8)
);
