//! All tables of the process: one for each VRF in which somebody follows a session.

use std::{
    cell::{Ref, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use holdfast_process::Boot;
use holdfast_xrl::XrlError;
use tokio::sync::{Mutex, watch};

use crate::{
    custody::Custody,
    kept::{Kept, Left},
    section::Profiles,
    table::{Inner, Table},
    wanted::Sessions,
};

/// Tables at most: clients name them.
const MOST_TABLES: usize = 1024;

type Vrf = Option<String>;

/// The tables, by the name of the VRF.
pub(crate) struct Tables {
    boot: Rc<Boot>,
    /// Profiles and the most sessions of a table, once they are known.
    settings: watch::Sender<Option<(Profiles, usize)>>,
    tables: RefCell<BTreeMap<Vrf, Table>>,
    /// Tables are begun one at a time: each has one memory at the keeper.
    beginning: Mutex<()>,
    /// Sessions that the process before has left, until it is known what is configured for them.
    left: RefCell<BTreeMap<Vrf, (Kept, Vec<Left>)>>,
}

impl Tables {
    pub(crate) fn new(boot: Rc<Boot>) -> Rc<Self> {
        let settings = watch::Sender::new(None);
        let (tables, beginning, left) = Default::default();
        Rc::new(Self { boot, settings, tables, beginning, left })
    }

    /// How this process runs.
    pub(crate) fn boot(&self) -> &Boot {
        &self.boot
    }

    /// Reads what the process before has left.
    ///
    /// # Errors
    /// As the keeper says.
    pub(crate) async fn recover(&self) -> anyhow::Result<()> {
        for vrf in Custody::tables(&self.boot.keeper).await? {
            let kept = Kept::open(&self.custody(vrf.as_deref())).await?;
            self.left.borrow_mut().insert(vrf, kept);
        }
        Ok(())
    }

    fn custody(&self, vrf: Option<&str>) -> Custody {
        Custody::new(self.boot.keeper.clone(), vrf.map(Rc::from))
    }

    /// Takes settings. Sessions that were left go on with the first ones.
    pub(crate) fn configure(&self, profiles: Profiles, most: usize) {
        let left = self.left.take();
        left.into_iter().for_each(|(vrf, kept)| {
            self.begin(vrf, kept, &profiles, most);
        });
        let tables: Vec<_> = self.tables.borrow().values().map(|table| Rc::clone(table.inner())).collect();
        tables.iter().for_each(|table| table.configure(profiles.clone(), most));
        self.settings.send_replace(Some((profiles, most)));
    }

    fn begin(&self, vrf: Vrf, kept: (Kept, Vec<Left>), profiles: &Profiles, most: usize) -> Rc<Inner> {
        let custody = self.custody(vrf.as_deref());
        let boot = match &vrf {
            None => Rc::clone(&self.boot),
            Some(vrf) => {
                let boot = Rc::new(self.boot.instance(vrf));
                boot.join();
                boot
            }
        };
        let table = Table::begin(boot, custody, kept, (profiles.clone(), most));
        let inner = Rc::clone(table.inner());
        self.tables.borrow_mut().insert(vrf, table);
        inner
    }

    /// The table of a VRF, which is begun with the first that asks. Waits until settings are known.
    ///
    /// # Errors
    /// There are too many, or there is no memory for its sessions.
    pub(crate) async fn table(&self, vrf: Vrf) -> Result<Rc<Inner>, XrlError> {
        let mut settings = self.settings.subscribe();
        let known = settings.wait_for(Option::is_some).await.map(|known| known.clone());
        let Ok(Some((profiles, most))) = known else { return Err(XrlError::unavailable("not configured")) };
        let _alone = self.beginning.lock().await;
        if let Some(table) = self.tables.borrow().get(&vrf) {
            return Ok(Rc::clone(table.inner()));
        }
        self.make_room()?;
        let kept = Kept::open(&self.custody(vrf.as_deref())).await?;
        Ok(self.begin(vrf, kept, &profiles, most))
    }

    fn make_room(&self) -> Result<(), XrlError> {
        let mut tables = self.tables.borrow_mut();
        if tables.len() >= MOST_TABLES {
            tables.retain(|_, table| !table.inner().sessions().is_idle());
        }
        match tables.len() < MOST_TABLES {
            true => Ok(()),
            false => Err(XrlError::unavailable(format!("there are {MOST_TABLES} tables with sessions"))),
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Ref<'_, BTreeMap<Vrf, Table>> {
        self.tables.borrow()
    }

    /// Clears counters, or begins sessions anew; what was done, for people.
    pub(crate) fn clear(&self, sessions: bool) -> Vec<String> {
        let tables: Vec<_> = self.tables.borrow().values().map(|table| Rc::clone(table.inner())).collect();
        if !sessions {
            tables.iter().for_each(|table| table.clear_counters());
            return vec!["counters".to_owned()];
        }
        let begun: usize = tables.iter().map(|table| table.act(Sessions::restart_all)).sum();
        vec![format!("{begun} sessions")]
    }

    /// Neighbours are told AdminDown: the sessions end because the router does.
    pub(crate) fn say_farewell(&self) {
        let tables: Vec<_> = self.tables.borrow().values().map(|table| Rc::clone(table.inner())).collect();
        tables.iter().for_each(|table| table.act(Sessions::close_all));
    }
}
