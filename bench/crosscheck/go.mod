module apus.test/crosscheck

go 1.24
