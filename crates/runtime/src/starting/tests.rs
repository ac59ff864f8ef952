use std::sync::mpsc::channel;
use std::time::Duration;

use super::*;

/// Says when it is dropped.
struct Guard(std::sync::mpsc::Sender<&'static str>);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.send("set back");
    }
}

#[test]
fn something_slow_that_nobody_ends_gives_back_what_was_laid_down() {
    let starting = Starting::default();
    let (told, hears) = channel();
    let (held, done) = starting.slowly((Guard(told), 7), || "done").unwrap();
    assert_eq!((held.1, done), (7, "done"));
    assert!(hears.try_recv().is_err(), "it was set back though it goes on");
    assert!(!starting.end(), "nothing slow is under way: it ends by itself");
    assert_eq!(starting.check(), Err(StartError::Ended));
    assert_eq!(starting.slowly(held, || "done").err(), Some(StartError::Ended));
    assert_eq!(hears.recv(), Ok("set back"), "what is not begun keeps nothing");
}

#[test]
fn what_was_laid_down_is_set_back_by_who_ends_it_and_nothing_goes_on() {
    let starting = Starting::default();
    let (told, hears) = channel();
    let (began, begins) = channel();
    let (finish, finished) = channel::<()>();
    let (same, went_on) = (starting.clone(), told.clone());
    std::thread::spawn(move || {
        let _ = same.slowly(Guard(told), || {
            began.send(()).unwrap();
            finished.recv().unwrap();
        });
        went_on.send("went on").unwrap();
    });
    begins.recv().unwrap();
    assert!(starting.end());
    assert_eq!(hears.recv(), Ok("set back"));
    finish.send(()).unwrap();
    assert!(hears.recv_timeout(Duration::from_millis(200)).is_err(), "the start went on");
    assert!(starting.is_over());
}
