<!doctype html>
<html lang="<?= $e($language) ?>">
<head>
<meta charset="utf-8">
<title><?= $e($title) ?></title>
<link rel="stylesheet" href="/style.css">
</head>
<body>
<?= $this->content() ?>
</body>
</html>
