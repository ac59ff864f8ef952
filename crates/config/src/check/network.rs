pub(super) fn check(_: &crate::read::Notes, _: &crate::model::Config) {}
