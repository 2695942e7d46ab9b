<?php
// The configuration of WordPress for tests: the script `stack` replaces FOLDER. The table prefix is the default one.
define('DB_NAME', 'wordpress');
define('DB_USER', 'wordpress');
define('DB_PASSWORD', 'of wordpress');
define('DB_HOST', 'localhost:FOLDER/db.sock');
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
foreach (['AUTH_KEY', 'SECURE_AUTH_KEY', 'LOGGED_IN_KEY', 'NONCE_KEY',
          'AUTH_SALT', 'SECURE_AUTH_SALT', 'LOGGED_IN_SALT', 'NONCE_SALT'] as $name) {
    define($name, hash('sha256', "FOLDER $name"));
}
// One installation responds over http and https, behind either server.
$scheme = empty($_SERVER['HTTPS']) ? 'http' : 'https';
define('WP_HOME', "$scheme://{$_SERVER['HTTP_HOST']}");
define('WP_SITEURL', WP_HOME);
// WordPress sends no requests of its own and runs no scheduled tasks.
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
define('DISABLE_WP_CRON', true);
$table_prefix = 'wp_';
if (!defined('ABSPATH')) {
    define('ABSPATH', __DIR__ . '/');
}
require_once ABSPATH . 'wp-settings.php';
