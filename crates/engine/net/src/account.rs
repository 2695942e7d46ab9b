//! User accounts of the system (`passwd(5)`, `group(5)`), which are found by name and assumed by a process.

use std::fmt;
use std::fs;
use std::io;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

/// The default users of a server that was started as root: the first that exists.
const UNPRIVILEGED: [&str; 2] = ["www-data", "nobody"];

/// The number of `nobody` where no file names users, as in a container with a single program.
const NOBODY: u32 = 65_534;

/// A user with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemAccount {
    /// The name of the user, or its number if it has no name.
    pub name: String,
    /// The number of the user.
    pub uid: u32,
    /// The number of its group.
    pub gid: u32,
    /// The numbers of all its groups.
    pub groups: Vec<u32>,
}

impl SystemAccount {
    /// The account of a user, by name or number. `group` replaces the user's own groups.
    ///
    /// # Errors
    /// There is no such user or group.
    pub fn find(user: &str, group: Option<&str>) -> Result<Self, AccountError> {
        AccountDatabase::of_system().find(user, group)
    }

    /// The default user of a server that was started as root: `www-data`, or `nobody`. `group` replaces its
    /// own groups.
    ///
    /// # Errors
    /// There is no such group.
    pub fn unprivileged(group: Option<&str>) -> Result<Self, AccountError> {
        let system = AccountDatabase::of_system();
        match UNPRIVILEGED.iter().find(|name| system.user(name).is_some()) {
            Some(name) => system.find(name, group),
            None => {
                let nobody = NOBODY.to_string();
                system.find(&nobody, Some(group.unwrap_or(&nobody)))
            }
        }
    }

    /// The name of the user that this process runs as, or its number.
    pub fn current_name() -> String {
        let uid = geteuid().as_raw().to_string();
        Self::find(&uid, None).map_or(uid, |account| account.name)
    }

    /// Whether it is root.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the account exists in the user namespace of this process (`user_namespaces(7)`). If an
    /// ordinary user is root by its own namespace, that namespace may have no other user.
    pub fn is_mapped(&self) -> bool {
        let maps = [
            ("/proc/self/uid_map", self.uid),
            ("/proc/self/gid_map", self.gid),
        ];
        // Without these files there are no namespaces.
        maps.into_iter()
            .all(|(file, id)| fs::read_to_string(file).map_or(true, |map| map_has(&map, id)))
    }

    /// Makes the calling thread, and all threads and processes that it starts later, run as this user without
    /// any capability, and unable to gain one by `execve` (`no_new_privs`). Linux keeps credentials per
    /// thread, so a process calls this before it has a second one.
    ///
    /// # Errors
    /// The system does not permit it. The thread must end then, because its credentials may have changed in
    /// part.
    pub fn assume(&self) -> io::Result<()> {
        self.assume_with(&self.raw_groups())
    }

    /// As [`SystemAccount::assume`], with the groups in the form of the system call, so that nothing is
    /// allocated.
    pub(crate) fn assume_with(&self, groups: &[Gid]) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        // Groups first, and the user last: without root, neither could be set any more.
        set_thread_groups(groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        if !uid.is_root() {
            // The kernel does this itself, unless securebits disable it.
            let none = CapabilitySet::empty();
            set_capabilities(
                None,
                CapabilitySets {
                    effective: none,
                    permitted: none,
                    inheritable: none,
                },
            )?;
        }
        // A program with the set-user-ID bit, which a child such as a CGI script might run, then gains nothing.
        set_no_new_privs(true)?;
        Ok(())
    }

    /// Its groups in the form of the system call.
    pub(crate) fn raw_groups(&self) -> Vec<Gid> {
        self.groups.iter().copied().map(Gid::from_raw).collect()
    }
}

/// Why an account cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccountError {
    /// There is no such user.
    User(String),
    /// There is no such group.
    Group(String),
    /// The number belongs to no user, so a group is required.
    GroupMissing(u32),
}

impl fmt::Display for AccountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "there is no user `{name}` in /etc/passwd"),
            Self::Group(name) => write!(f, "there is no group `{name}` in /etc/group"),
            Self::GroupMissing(uid) => write!(
                f,
                "no user in /etc/passwd has the number {uid}, so `group` is required"
            ),
        }
    }
}

impl std::error::Error for AccountError {}

/// Whether a map of a user namespace includes an id. Its lines have the first id inside, the first outside,
/// and the number of ids.
fn map_has(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), _, Some(Ok(count))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&u64::from(id))
    })
}

/// The id of a user or group; system calls use the largest number for no id.
fn number(text: &str) -> Option<u32> {
    // -1 means "leave it as it is" for setresuid(2): the process would stay root.
    text.parse().ok().filter(|number| *number != u32::MAX)
}

/// The text of `/etc/passwd` and `/etc/group`.
struct AccountDatabase {
    passwd: String,
    group: String,
}

impl AccountDatabase {
    fn of_system() -> Self {
        // A container may have neither file; ids are numbers then.
        let read = |path| fs::read(path).unwrap_or_default();
        Self {
            passwd: String::from_utf8_lossy(&read("/etc/passwd")).into_owned(),
            group: String::from_utf8_lossy(&read("/etc/group")).into_owned(),
        }
    }

    /// The name, number and group of a user.
    fn user(&self, wanted: &str) -> Option<(&str, u32, u32)> {
        let wanted_uid = number(wanted);
        self.passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let uid = number(fields.nth(1)?)?;
            let gid = number(fields.next()?)?;
            (name == wanted || wanted_uid == Some(uid)).then_some((name, uid, gid))
        })
    }

    fn group(&self, wanted: &str) -> Option<u32> {
        let named = self.group.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let gid = number(fields.nth(1)?)?;
            (name == wanted).then_some(gid)
        });
        named.or_else(|| number(wanted))
    }

    /// The groups that list a user as a member.
    fn memberships(&self, user: &str) -> Vec<u32> {
        let of_line = |line: &str| {
            let mut fields = line.split(':');
            let gid = number(fields.nth(2)?)?;
            let mut members = fields.next()?.split(',');
            members.any(|member| member == user).then_some(gid)
        };
        self.group.lines().filter_map(of_line).collect()
    }

    fn find(&self, user: &str, group: Option<&str>) -> Result<SystemAccount, AccountError> {
        let group = match group {
            Some(name) => Some(
                self.group(name)
                    .ok_or_else(|| AccountError::Group(name.to_owned()))?,
            ),
            None => None,
        };
        let (name, uid, own_gid) = match (self.user(user), number(user), group) {
            (Some(known), _, _) => known,
            (None, Some(uid), Some(gid)) => (user, uid, gid),
            (None, Some(uid), None) => return Err(AccountError::GroupMissing(uid)),
            (None, None, _) => return Err(AccountError::User(user.to_owned())),
        };
        let mut groups = vec![group.unwrap_or(own_gid)];
        if group.is_none() {
            groups.extend(
                self.memberships(name)
                    .into_iter()
                    .filter(|gid| *gid != own_gid),
            );
        }
        Ok(SystemAccount {
            name: name.to_owned(),
            uid,
            gid: group.unwrap_or(own_gid),
            groups,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database() -> AccountDatabase {
        AccountDatabase {
            passwd: "root:x:0:0:root:/root:/bin/bash\nwww-data:x:33:33::/var/www:/bin/false\n\
                     broken\n"
                .to_owned(),
            group: "root:x:0:\nwww-data:x:33:\nssl-cert:x:112:postgres,www-data\nbroken\n"
                .to_owned(),
        }
    }

    #[test]
    fn users_are_found_by_name_and_number_with_their_groups() {
        let by_name = database().find("www-data", None).unwrap();
        assert_eq!((by_name.uid, by_name.gid), (33, 33));
        assert_eq!(by_name.groups, [33, 112]);
        assert_eq!(database().find("33", None).unwrap(), by_name);
        let other_group = database().find("www-data", Some("ssl-cert")).unwrap();
        assert_eq!((other_group.gid, other_group.groups), (112, vec![112]));
        let unnamed = database().find("1234", Some("99")).unwrap();
        assert_eq!(
            (unnamed.uid, unnamed.gid, unnamed.groups),
            (1234, 99, vec![99])
        );
        assert!(database().find("root", None).unwrap().is_root());
    }

    #[test]
    fn a_user_namespace_with_one_user_has_no_other() {
        let own = "         0       1000          1\n";
        assert!(map_has(own, 0) && !map_has(own, 1) && !map_has(own, 33));
        let rootless = "0 1000 1\n1 100000 65536\n";
        assert!(map_has(rootless, 33) && map_has(rootless, 65_536) && !map_has(rootless, 65_537));
        assert!(map_has("0 0 4294967295", 65_534) && !map_has("", 0));
    }

    #[test]
    fn an_unknown_account_is_named() {
        let error = |user, group| database().find(user, group).unwrap_err();
        assert_eq!(error("nemo", None), AccountError::User("nemo".to_owned()));
        assert_eq!(error("7", None), AccountError::GroupMissing(7));
        assert_eq!(
            error("root", Some("nemo")),
            AccountError::Group("nemo".to_owned())
        );
        assert_eq!(error("", None), AccountError::User(String::new()));
    }
}
