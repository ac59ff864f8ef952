//! Management API: request and response types, HTTP server, client.
#![forbid(unsafe_code)]
