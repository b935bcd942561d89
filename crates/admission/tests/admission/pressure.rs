use std::time::{Duration, Instant};

use holdfast_admission::{Load, Numbers, Pressure};

#[test]
fn there_is_load_by_handshakes_or_by_attempts() {
    let now = Instant::now();
    let pressure = Pressure::new(&Numbers { load_handshakes: 3, load_attempts: 2, ..Numbers::default() });
    let handshakes = |handshakes| Load { handshakes, connections: 0 };
    assert!(!pressure.is_high(handshakes(2), now));
    assert!(pressure.is_high(handshakes(3), now));
    pressure.attempt(now);
    assert!(!pressure.is_high(handshakes(0), now));
    pressure.attempt(now);
    assert!(pressure.is_high(handshakes(0), now));
    assert!(!pressure.is_high(handshakes(0), now + Duration::from_secs(3)));
}

#[test]
fn attempts_fade_over_a_second() {
    let now = Instant::now();
    let at = |millis| now + Duration::from_millis(millis);
    let pressure = Pressure::new(&Numbers::default());
    assert_eq!(pressure.attempts_per_second(now), 0);
    for _ in 0..100 {
        pressure.attempt(at(0));
    }
    // Those of one second count whole until it is over, then less and less.
    let seen =
        [0, 999, 1000, 1250, 1500, 1990, 2000, 9000].map(|millis| pressure.attempts_per_second(at(millis)));
    assert_eq!(seen, [100, 100, 100, 75, 50, 1, 0, 0]);
    pressure.attempt(at(1500));
    assert_eq!(pressure.attempts_per_second(at(1500)), 51);
    assert_eq!(pressure.attempts_per_second(at(2500)), 0);
    // The clock of another listener may be a moment behind.
    assert_eq!(pressure.attempts_per_second(at(900)), 101);
}
