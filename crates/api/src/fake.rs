//! A daemon that is not there: fixed, small answers for tests of server, client and command line.
