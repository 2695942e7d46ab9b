<?php
// WordPress of a test: FOLDER is filled in. The table is that of wp-config-sample.php.
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
// One installation answers under http and https, whoever serves it.
$scheme = empty($_SERVER['HTTPS']) ? 'http' : 'https';
define('WP_HOME', "$scheme://{$_SERVER['HTTP_HOST']}");
define('WP_SITEURL', WP_HOME);
// Nobody is asked for news, and nothing happens unless asked for.
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
define('DISABLE_WP_CRON', true);
$table_prefix = 'wp_';
if (!defined('ABSPATH')) {
    define('ABSPATH', __DIR__ . '/');
}
require_once ABSPATH . 'wp-settings.php';
