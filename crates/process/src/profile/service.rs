//! `profile.v1`.

use holdfast_api::profile::v1::{self as api, Empty, EnableRequest, Points, ProfileServer, Records};
use holdfast_xrl::{CallContext, ReplySink, XrlError};

use super::{Profile, Record};

/// Room for records unless told otherwise.
const CAPACITY: usize = 1 << 18;
/// Most room: a full table of both families twice, with some to spare.
const MAX_CAPACITY: usize = 1 << 22;
/// Records in one message.
const PAGE: usize = 1024;

/// Serves `profile.v1` over the points of the process.
pub(crate) struct ProfileService(pub(crate) Profile);

impl Profile {
    fn list(&self) -> Points {
        let ring = self.0.ring.borrow();
        let point = |point: &super::Point| api::Point {
            number: point.place.number,
            name: point.place.name.into(),
            title: point.place.title.into(),
            enabled: point.on.get(),
        };
        Points {
            points: self.0.points.borrow().iter().map(point).collect(),
            capacity: ring.capacity() as u32,
            recorded: ring.len() as u32,
            overwritten: ring.overwritten(),
        }
    }

    fn enable(&self, request: &EnableRequest) -> Result<(), XrlError> {
        let points = self.0.points.borrow();
        let missing =
            request.points.iter().find(|name| points.iter().all(|point| point.place.name != **name));
        if let Some(name) = missing {
            return Err(XrlError::not_found(format!("there is no point {name:?} in this process")));
        }
        let capacity = request.capacity as usize;
        if capacity > MAX_CAPACITY {
            return Err(XrlError::invalid_argument(format!("there is room for {MAX_CAPACITY} records")));
        }
        self.make_room(capacity);
        let is_meant = |name| request.points.is_empty() || request.points.iter().any(|wanted| wanted == name);
        points.iter().filter(|point| is_meant(point.place.name)).for_each(|point| point.on.set(true));
        Ok(())
    }

    fn make_room(&self, wanted: usize) {
        let mut ring = self.0.ring.borrow_mut();
        match wanted {
            0 if ring.capacity() == 0 => ring.resize(CAPACITY),
            0 => {}
            wanted if wanted == ring.capacity() => {}
            wanted => ring.resize(wanted),
        }
    }

    fn disable(&self) {
        self.0.points.borrow().iter().for_each(|point| point.on.set(false));
    }

    fn clear(&self) {
        let is_on = self.0.points.borrow().iter().any(|point| point.on.get());
        let mut ring = self.0.ring.borrow_mut();
        match is_on {
            true => ring.clear(),
            false => ring.resize(0),
        }
    }
}

impl ProfileServer for ProfileService {
    async fn list(&self, _: &CallContext, _: Empty) -> Result<Points, XrlError> {
        Ok(self.0.list())
    }

    async fn enable(&self, _: &CallContext, request: EnableRequest) -> Result<Empty, XrlError> {
        self.0.enable(&request)?;
        Ok(Empty {})
    }

    async fn disable(&self, _: &CallContext, _: Empty) -> Result<Empty, XrlError> {
        self.0.disable();
        Ok(Empty {})
    }

    async fn read(&self, _: &CallContext, _: Empty, mut replies: ReplySink<Records>) -> Result<(), XrlError> {
        // Who reads slower than routes pass would otherwise never come to an end.
        let end = self.0.0.ring.borrow().end();
        let mut position = 0;
        while position < end {
            replies.ready().await?;
            let (records, next) = self.0.0.ring.borrow().read(position, PAGE);
            if records.is_empty() {
                break;
            }
            position = next;
            replies.send(Records { records: records.iter().map(record).collect() }).await?;
        }
        Ok(())
    }

    async fn clear(&self, _: &CallContext, _: Empty) -> Result<Empty, XrlError> {
        self.0.clear();
        Ok(Empty {})
    }
}

fn record(record: &Record) -> api::Record {
    api::Record {
        point: record.point,
        time: record.time,
        prefix: record.prefix.to_string(),
        withdrawn: !record.comes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{RIB_IN, RIB_SENT};

    fn request(points: &[&str], capacity: u32) -> EnableRequest {
        EnableRequest { points: points.iter().map(|&name| name.into()).collect(), capacity }
    }

    fn on(profile: &Profile) -> Vec<String> {
        profile.list().points.into_iter().filter(|point| point.enabled).map(|point| point.name).collect()
    }

    #[test]
    fn points_are_switched_by_name_or_all() {
        let profile = Profile::default();
        for place in [&RIB_IN, &RIB_SENT] {
            profile.point(place);
        }
        assert_eq!((on(&profile), profile.list().capacity), (vec![], 0), "off without memory");
        profile.enable(&request(&["rib-sent"], 0)).expect("known");
        assert_eq!((on(&profile), profile.list().capacity), (vec!["rib-sent".to_owned()], 1 << 18));
        profile.enable(&request(&[], 0)).expect("all");
        assert_eq!(on(&profile).len(), 2);
        profile.disable();
        assert!(on(&profile).is_empty());
    }

    #[test]
    fn what_makes_no_sense_changes_nothing() {
        let profile = Profile::default();
        profile.point(&RIB_IN);
        assert!(profile.enable(&request(&["rib-in", "nowhere"], 0)).is_err());
        assert!(profile.enable(&request(&[], 1 + MAX_CAPACITY as u32)).is_err());
        assert_eq!((on(&profile), profile.list().capacity), (vec![], 0));
    }

    #[test]
    fn clearing_gives_the_memory_back_when_nothing_is_recorded_any_more() {
        let profile = Profile::default();
        let point = profile.point(&RIB_IN);
        profile.enable(&request(&[], 16)).expect("room");
        point.pass(|| [("10.0.0.0/8".parse().expect("prefix"), true)]);
        profile.enable(&request(&[], 16)).expect("the same");
        assert_eq!(profile.list().recorded, 1, "what was recorded stays");
        profile.clear();
        assert_eq!((profile.list().recorded, profile.list().capacity), (0, 16));
        profile.disable();
        profile.clear();
        assert_eq!(profile.list().capacity, 0);
    }
}
